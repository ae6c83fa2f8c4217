"""The harness: SSH implementations tried and measured against each other. Not part of the wheel."""
