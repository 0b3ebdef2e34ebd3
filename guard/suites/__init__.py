"""Published bias suites: each turns its pack into items, requests, outcomes and measures."""

from __future__ import annotations

from guard.results.estimate import Estimate as Estimate
from guard.results.measure import Measure as Measure
from guard.results.measure import column as column
from guard.results.measure import share as share
from guard.results.samples import Floats as Floats
from guard.results.samples import Samples as Samples
from guard.suites.contract import NON_ANSWERS as NON_ANSWERS
from guard.suites.contract import About as About
from guard.suites.contract import AnswerLean as AnswerLean
from guard.suites.contract import Capability as Capability
from guard.suites.contract import ComparisonGroup as ComparisonGroup
from guard.suites.contract import Item as Item
from guard.suites.contract import MeasureText as MeasureText
from guard.suites.contract import Options as Options
from guard.suites.contract import Outcome as Outcome
from guard.suites.contract import Publication as Publication
from guard.suites.contract import Published as Published
from guard.suites.contract import Record as Record
from guard.suites.contract import Suite as Suite
from guard.suites.optional import AdaptsRequests as AdaptsRequests
from guard.suites.optional import AsksOtherModels as AsksOtherModels
from guard.suites.optional import ExplainsResults as ExplainsResults
from guard.suites.requests import Answer as Answer
from guard.suites.requests import Chat as Chat
from guard.suites.requests import GroupTexts as GroupTexts
from guard.suites.requests import Judge as Judge
from guard.suites.requests import LogLikelihood as LogLikelihood
from guard.suites.requests import Patch as Patch
from guard.suites.requests import Request as Request
from guard.suites.requests import Role as Role
from guard.suites.requests import TextScore as TextScore
from guard.suites.tables import ReadsTables as ReadsTables
