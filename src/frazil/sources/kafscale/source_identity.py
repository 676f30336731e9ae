"""What offsets are counted in, and what makes a topic another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import SourceReplacedError

if TYPE_CHECKING:
    from frazil.config.models.kafscale_source import KafscaleSection
    from frazil.model.marker import Marker


def source_identity(section: KafscaleSection) -> str:
    """The bucket and the namespace that offsets are of."""
    return f"kafscale://{section.bucket}/{section.namespace.strip('/')}"


def require_same_source(identity: str, since: Marker | None) -> None:
    """Raise SourceReplacedError for offsets that were counted elsewhere."""
    if since is not None and since.source != identity:
        message = f"offsets were counted in {since.source}, and this is {identity}."
        next_step = "name the bucket and the namespace of before, or another pipeline"
        raise SourceReplacedError(message, next_step=next_step)


def explain_topic_change(before: str, now: str) -> tuple[str, ...]:
    """A topic that was made again continues its offsets: it is known by its name alone."""
    return () if before == now else ("another topic took its name",)
