"""How well the configured back ends find what a judged collection says is relevant; no other service takes part."""
