"""Stand-ins for what is on the other side of a protocol; what is under test is never doubled."""
