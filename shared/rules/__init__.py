"""Rules over knowledge graphs: mining, applying and reading them. Pure: arrays and values, no I/O."""
