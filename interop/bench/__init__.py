"""Speed beside peers, in one run: ``python -m interop.bench``, ``make bench``.

Peers take turns (A B C A B C ...), each measurement in a process of its own; what counts is CPU seconds of that process
where nothing else is said, as a ratio to a peer in the same round, since machines are noisy.
"""
