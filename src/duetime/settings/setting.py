"""One setting: its default, its parser and its help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, overload

from duetime.settings import BadSetting

T = TypeVar("T")

HIDDEN = "********"  # shown in place of a secret


class Given(NamedTuple):
    """The text of a setting. `source`: a flag, a variable of the environment, the file, or `default`."""

    text: str
    source: str


class GivenTexts:
    """The texts of all settings, by name. `Setting`s that a subclass declares read their values from them."""

    def __init__(self, given: Mapping[str, Given]) -> None:
        self.given = given


class Setting(Generic[T]):
    """Declares a setting as an attribute. The attribute's name in upper case is the setting's name.

    The attribute of an instance is the value. It is read from its text when it is first used, which raises BadSetting
    if the text can't be read. `read` raises ValueError; its message must not hold the text, which may be a secret.
    """

    def __init__(
        self,
        default: str,
        read: Callable[[str], T],
        help: str,
        *,
        if_empty: Callable[[Any], T] | None = None,  # returns the value, from the other settings, if the text is empty
        is_secret: bool = False,
        also_from: str | None = None,  # another variable of the environment that it is read from
    ) -> None:
        self.default = default
        self.help = help
        self.is_secret = is_secret
        self.also_from = also_from
        self._read = read
        self._if_empty = if_empty

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute
        self.name = attribute.upper()

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, instance: GivenTexts, owner: type) -> T: ...
    def __get__(self, instance: GivenTexts | None, owner: type) -> Setting[T] | T:
        if instance is None:
            return self
        text, source = instance.given[self.name]
        try:
            value = self._if_empty(instance) if self._if_empty and not text else self._read(text)
        except ValueError as error:
            shown = HIDDEN if self.is_secret else text
            raise BadSetting(f"{self.name}: '{shown}' (from {source}) can't be used: {error}") from None
        instance.__dict__[self.attribute] = value  # replaces this descriptor for the instance
        return value

    def show(self, instance: GivenTexts) -> str:
        """Returns the text of the value. If it is empty, returns the value that replaces it. A secret is hidden."""
        value = getattr(instance, self.attribute)
        if self.is_secret:
            return HIDDEN if value else ""
        return instance.given[self.name].text or str(value or "")
