"""The times at which the flush of one buffer reached its steps."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class EntryUpload:
    """The upload of one entry, which the buffers in it share.

    `puts`: requests to the object store so far. More than one: it was hedged or retried.
    """

    puts: int = 0

    def attempted(self) -> None:
        """A request was sent."""
        self.puts += 1


@dataclass(slots=True, eq=False)
class FlushTimes:
    """Times of `time.perf_counter`; 0.0 for a step that is not reached. `upload`: once the buffer is in an entry."""

    sealed_sec: float = 0.0
    uploaded_sec: float = 0.0
    published_sec: float = 0.0
    upload: EntryUpload | None = None

    @property
    def puts(self) -> int:
        """Requests to the object store that the buffer's entry took so far."""
        return 0 if self.upload is None else self.upload.puts
