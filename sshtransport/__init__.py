"""SSH for asyncio."""

__version__ = "0.1.0"
