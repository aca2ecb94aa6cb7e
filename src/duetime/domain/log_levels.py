"""Log levels: one for all areas, and others for single areas: `info,engine=debug,api=warning`."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

LEVELS = ("debug", "info", "warning", "error")
JOBS, EXECUTIONS, LIBRARIES = "jobs", "executions", "libraries"
# Packages of Duetime, and three that are none: what happens to jobs and to executions, and other people's packages.
AREAS = (
    "api", "assembly", "bus", "cli", "engine", "executors", "functions", "logs", "node", "operate", "process",
    "registry", "sdk", "serving", "store", "telemetry", "vault", JOBS, EXECUTIONS, LIBRARIES,
)  # fmt: skip


class LogLevels(NamedTuple):
    default: str = "info"
    areas: Mapping[str, str] = {}

    def of(self, area: str) -> str:
        """Returns the level of an area. Other people's packages log warnings and errors, unless they are named."""
        level = self.areas.get(area, self.default)
        return "warning" if area == LIBRARIES and area not in self.areas and level in ("debug", "info") else level

    def shows(self, area: str, level: str) -> bool:
        return LEVELS.index(level) >= LEVELS.index(self.of(area))

    @property
    def lowest(self) -> str:
        return min((self.default, *self.areas.values()), key=LEVELS.index)


def parse_log_levels(text: str) -> LogLevels:
    """Raises ValueError with the area that is wrong."""
    default, areas = "info", dict[str, str]()
    for part in text.lower().split(","):
        area, equals, level = (word.strip() for word in part.partition("="))
        if not equals:
            default = _level(area, "")
        elif area not in AREAS:
            near = get_close_matches(area, AREAS, n=1)
            advice = f"did you mean {near[0]}?" if near else f"areas are {', '.join(AREAS)}"
            raise ValueError(f"there is no area '{area}'; {advice}")
        else:
            areas[area] = _level(level, f" of the area '{area}'")
    return LogLevels(default, areas)


def _level(text: str, of_what: str) -> str:
    if text not in LEVELS:
        raise ValueError(f"the level{of_what} must be one of {', '.join(LEVELS)}; such as info,engine=debug")
    return text
