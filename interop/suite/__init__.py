"""The project's own tests on another release: its Python and its OpenSSH, in a container."""
