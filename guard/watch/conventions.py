"""Names of spans, attributes and events: as conventions change, only this module must.

OpenTelemetry's names are from its GenAI semantic conventions 0.1.0, which took them over from its
semantic conventions 1.41; OpenInference's from its specification of 2026. Names under ``guard.``
are guard's own.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
"""The schema that guard's tracer declares."""

# OpenTelemetry, events of GenAI.
EVALUATION = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
SCORE = "gen_ai.evaluation.score.value"
LABEL = "gen_ai.evaluation.score.label"
EXPLANATION = "gen_ai.evaluation.explanation"
REQUEST_MODEL = "gen_ai.request.model"
ERROR = "error.type"

# OpenInference, spans.
SPAN_KIND = "openinference.span.kind"
GUARDRAIL = "GUARDRAIL"

# guard's own.
SPAN = "guard"
"""The name of guard's span."""
BIAS = "social_bias"
"""The name of guard's evaluation."""
BIAS_TYPE = "guard.bias_type"
THRESHOLD = "guard.threshold"
ACTION = "guard.action"
CHANNEL = "guard.channel"
SEGMENT = "guard.segment"
RESPONSE = "guard.response_id"
DOOR = "guard.door"
OUTCOME = "guard.outcome"
DETECTOR = "guard.detector"
INDEX = "guard.index_version"
COUNTS = {
    "judged": "guard.segments.judged",
    "unjudged": "guard.segments.unjudged",
    "found": "guard.findings",
    "mitigated": "guard.findings.mitigated",
    "characters_withheld": "guard.characters.withheld",
}
"""Span attributes of a response's counts, by their names in the store."""
