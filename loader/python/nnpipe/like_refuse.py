"""The exception of nnpipe.like() for what it cannot do."""


class Unsupported(NotImplementedError):
    """nnpipe.like() cannot give the batches of this DataLoader. The text names the part, and says what to do."""
