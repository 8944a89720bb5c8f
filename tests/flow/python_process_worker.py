"""What a spawned worker of python_process.py runs. Not a test."""


def work(loader):
    return [label for _, labels in loader for label in labels.tolist()]
