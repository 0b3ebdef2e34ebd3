"""The sans-I/O core: cuts text into segments, takes decisions, releases text.

No threads, no clocks, no LiteLLM: a door feeds it chunks and verdicts and emits what it returns.
"""

from guard.gate.codec import Codec, Part, by_channel
from guard.gate.edits import TextEdit
from guard.gate.gate import Gate
from guard.gate.job import Job
from guard.gate.response import ResponseGate
from guard.gate.segmenter import Segment, Segmenter, split

__all__ = [
    "Codec",
    "Gate",
    "Job",
    "Part",
    "ResponseGate",
    "Segment",
    "Segmenter",
    "TextEdit",
    "by_channel",
    "split",
]
