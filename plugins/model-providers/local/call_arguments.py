"""Arguments of a tool call in the values that the tool takes: enum values, units, types, names of parameters.

The grammar ensures them for the model's own form of calls. A call that a model writes freely, or a text parameter of
which only the description lists the values ("Units: km, mi, C, F"), needs them to be matched: by case, by synonyms, and
by edit distance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hermes_agent.core.text import distance

_TOKEN = re.compile(r"[A-Za-z°µ]+(?:/[A-Za-z]+|²|³|\d)?")
_UNIT_WORDS: dict[str, tuple[str, ...]] = {
    short: tuple(words.split("|"))
    for short, words in {
        "m": "meter|metre|meters|metres",
        "km": "kilometer|kilometre|kilometers|kilometres",
        "cm": "centimeter|centimetre|centimeters|centimetres",
        "mm": "millimeter|millimetre|millimeters|millimetres",
        "mi": "mile|miles",
        "ft": "foot|feet",
        "in": "inch|inches",
        "yd": "yard|yards",
        "kg": "kilogram|kilograms|kilo|kilos|kilogramme|kilogrammes",
        "g": "gram|grams|gramme|grammes",
        "mg": "milligram|milligrams",
        "lb": "pound|pounds|lbs",
        "oz": "ounce|ounces",
        "C": "celsius|centigrade|degrees celsius|degree celsius|°c|deg c",
        "F": "fahrenheit|degrees fahrenheit|degree fahrenheit|°f|deg f",
        "K": "kelvin|kelvins|degrees kelvin",
        "B": "byte|bytes",
        "KB": "kilobyte|kilobytes",
        "MB": "megabyte|megabytes",
        "GB": "gigabyte|gigabytes",
        "TB": "terabyte|terabytes",
        "s": "second|seconds|sec|secs",
        "ms": "millisecond|milliseconds",
        "min": "minute|minutes|mins",
        "hr": "hour|hours|h|hrs",
        "h": "hour|hours|hr|hrs",
        "day": "days|d",
        "l": "liter|litre|liters|litres",
        "gal": "gallon|gallons",
    }.items()
}
PATH_PARAMETERS = frozenset({"path", "file", "filename", "file_path", "directory", "folder", "workdir", "cwd"})
_INVENTED_ROOT = re.compile(r"~|/$|/(?:home|root|Users|path|your|user)\b")
_ABSOLUTE = re.compile(r"[~/]")
MOST_SLIPS = 2
"""Greatest edit distance to a value, and only to one that is nearer than every other."""
SHORTEST_WITH_SLIPS = 4


def normalise_arguments(
    arguments: Mapping[str, Any], parameters: Mapping[str, Any], texts: Iterable[str]
) -> dict[str, Any]:
    """Return the arguments with names, types and values as the tool takes them; what fits nothing stays as it is.

    Args:
        parameters: the tool's object schema.
        texts: its description and those of its parameters, which may list values.
    """
    properties = parameters.get("properties")
    if not isinstance(properties, dict) or not properties:
        return dict(arguments)
    texts = tuple(texts)
    listed = frozenset(token for text in texts for token in _TOKEN.findall(text))
    has_other_power = any("**" in text for text in texts) and not any("^" in text for text in texts)
    out: dict[str, Any] = {}
    for given, value in arguments.items():
        name = given if given in properties else nearest(given, set(properties) - arguments.keys()) or given
        schema = properties.get(name)
        if has_other_power and isinstance(value, str):
            value = value.replace("^", "**")  # the tool would take it for another operator
        out[name] = _normalise(value, schema, listed) if isinstance(schema, dict) else value
    return out


def drop_empty(arguments: Mapping[str, Any], required: Collection[str]) -> dict[str, Any]:
    """Return the arguments without optional ones that a small model fills in with nothing: 0, "", null, empty lists."""
    return {
        name: value
        for name, value in arguments.items()
        if name in required or isinstance(value, bool) or value not in (0, "", None, [], {})
    }


def ground_paths(arguments: Mapping[str, Any], required: Collection[str], sources: Iterable[str]) -> dict[str, Any]:
    """Return the arguments without invented directories.

    A file that a source names is looked for by that name. An optional directory that no source names is left out, and
    a required path stays, unless it is under a home.
    """
    known = "\n".join(sources)
    out = dict(arguments)
    for name in PATH_PARAMETERS & out.keys():
        value = out[name]
        if not isinstance(value, str) or not _ABSOLUTE.match(value) or _names(value, known):
            continue
        if name in required and not _INVENTED_ROOT.match(value):
            continue  # such as /etc/os-release, for a question about the system
        base = value.rstrip("/").rpartition("/")[2]
        if "." in base and base in known:
            out[name] = base
        elif name not in required:
            del out[name]
    return out


def _names(path: str, known: str) -> bool:
    """Return whether a text has the path; the root only as a word of its own."""
    return path.rstrip("/") in known if path != "/" else re.search(r"(?:^|\s)/(?:\s|$|[?.!])", known) is not None


def _normalise(value: Any, schema: Mapping[str, Any], listed: frozenset[str]) -> Any:
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        texts = {str(each): each for each in allowed}
        found = nearest(str(value), texts)
        return value if found is None else texts[found]
    kind = schema.get("type")
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return [_normalise(each, items, listed) for each in value]
    if isinstance(value, str):
        if kind in ("number", "integer", "boolean", "array", "object"):
            return _parse(value, str(kind))
        return short_unit(value, listed)
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _parse(text: str, kind: str) -> Any:
    """Return the value that a text writes, or the text."""
    try:
        value = json.loads(
            text.strip().lower()
            if kind == "boolean"
            else text.strip().replace(",", "")
            if kind in ("number", "integer")
            else text
        )
    except ValueError:
        return text
    wanted = {"number": (int, float), "integer": (int,), "boolean": (bool,), "array": (list,), "object": (dict,)}[kind]
    if kind in ("number", "integer") and isinstance(value, bool):
        return text
    return value if isinstance(value, wanted) else text


def short_unit(value: str, listed: frozenset[str]) -> str:
    """Return the abbreviation of a unit that the tool lists, if it does not list the value itself."""
    plain = value.strip().lower()
    if value in listed or not plain or len(plain) > 20:
        return value
    for short in listed:
        if plain in _UNIT_WORDS.get(short, ()) or (plain == short.lower() != short and short in _UNIT_WORDS):
            return short
    return value


def nearest(value: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed text that `value` stands for: the same but for case and marks, a unit's word, or a slip."""
    names = list(allowed)
    plain = _plain(value)
    for name in names:
        if _plain(name) == plain:
            return name
    for name in names:
        words = {_plain(word) for word in _UNIT_WORDS.get(name, ())}
        if plain in words or any(plain == _plain(s) for s, ws in _UNIT_WORDS.items() if name.lower() in ws):
            return name
    if len(plain) < SHORTEST_WITH_SLIPS:
        return None
    ranked = sorted((distance(plain, _plain(name)), name) for name in names)
    if not ranked or ranked[0][0] > min(MOST_SLIPS, len(plain) // 3):
        return None
    return None if len(ranked) > 1 and ranked[1][0] == ranked[0][0] else ranked[0][1]


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", "", text.strip().lower())
