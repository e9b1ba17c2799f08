"""Reads a rubric file: the labels of one task with definitions, boundaries, examples, rules and roles, frozen."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from runner import digests, plain_yaml
from runner.errors import UserError

HOME = Path(__file__).resolve().parents[1] / "rubrics"

Text = Annotated[str, Field(min_length=1, max_length=4000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Label(_Frozen):
    """One category: what it is, what it is not, whether the study named it, and the group that it counts in."""

    id: Name
    is_: Text = Field(alias="is")
    is_not: Text
    study: bool = False
    examples: tuple[Text, ...] = ()
    group: Name | None = None


class Value(_Frozen):
    """One value of a flag or scale."""

    id: str
    is_: Text = Field(alias="is")

    @field_validator("id", mode="before")
    @classmethod
    def _spelled(cls, value: Any) -> Any:
        return str(value).lower() if isinstance(value, bool) else value


class Scale(_Frozen):
    """A flag of every item, or a scale beside the label: its values in order, strongest first."""

    id: Name
    is_: Text = Field(alias="is")
    values: tuple[Value, ...] = Field(min_length=2)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(v.id for v in self.values)


class Group(_Frozen):
    """Labels that are counted together."""

    id: Name
    is_: Text = Field(alias="is")


class Rubric(_Frozen):
    """One task's labels. `roles` says which labels, groups or values the statistics mean, so that no code names one."""

    id: Name
    version: Annotated[str, Field(min_length=1, max_length=40)]
    task: Name
    title: Text
    unit: Text
    labels: tuple[Label, ...] = Field(min_length=2)
    none_label: Name | None = None
    rules: tuple[Text, ...] = ()
    flags: tuple[Scale, ...] = ()
    scales: tuple[Scale, ...] = ()
    group_names: tuple[Group, ...] = Field(default=(), alias="groups")
    roles: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        for what, things in (
            ("label", self.labels),
            ("flag", self.flags),
            ("scale", self.scales),
            ("group", self.group_names),
        ):
            ids = [thing.id for thing in things]
            if twice := sorted({i for i in ids if ids.count(i) > 1}):
                raise ValueError(f"{what} {twice[0]} stands twice")
        if self.none_label in self.ids:
            raise ValueError(f"none_label {self.none_label} is also a label")
        known = {g.id for g in self.group_names}
        if lost := [x.group for x in self.labels if x.group is not None and x.group not in known]:
            raise ValueError(f"group {lost[0]} of a label is not in groups")
        names = {*self.ids, *known, *(v for s in (*self.scales, *self.flags) for v in s.ids)}
        for role, members in self.roles.items():
            if lost := [m for m in members if m not in names]:
                raise ValueError(f"role {role} names {lost[0]}, which is no label, group or value")
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """The label ids in order, without the none label."""
        return tuple(x.id for x in self.labels)

    @property
    def answers(self) -> tuple[str, ...]:
        """Every label an answer may hold: the ids, and the none label where there is one."""
        return self.ids + ((self.none_label,) if self.none_label else ())

    @property
    def sha256(self) -> str:
        """Digest of the content in canonical spelling: comments and the order of keys do not change it."""
        return digests.of_value(self.model_dump(mode="json", by_alias=True))

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Group id -> the ids of its labels, in the order of the file."""
        return {g.id: tuple(x.id for x in self.labels if x.group == g.id) for g in self.group_names}

    def label(self, id: str) -> Label:
        """The label of that id; UserError when there is none."""
        for label in self.labels:
            if label.id == id:
                return label
        raise UserError(f"label {id!r}: rubric {self.id} has {', '.join(self.ids)}; use one of these")

    def scale(self, id: str) -> Scale:
        """The flag or scale of that id; UserError when there is none."""
        for scale in (*self.flags, *self.scales):
            if scale.id == id:
                return scale
        raise UserError(f"scale {id!r}: rubric {self.id} has none of that name; add it to the file")

    def role(self, name: str) -> tuple[str, ...]:
        """The labels, groups or values that play a role; UserError when the file does not say."""
        if name not in self.roles:
            raise UserError(f"role {name!r}: rubric {self.id} does not say who plays it; add it under roles")
        return self.roles[name]


def parse(raw: bytes | str, name: str = "rubric") -> Rubric:
    """A rubric from the bytes of its file; UserError, one line, when it is none."""
    return _rubric(plain_yaml.parse(raw, name), name)


def _rubric(data: Any, name: str) -> Rubric:
    if not isinstance(data, Mapping):
        raise UserError(f"{name}: a rubric is a mapping with id, version, task and labels; see rubrics/content.yaml")
    try:
        return Rubric.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"]) or "file"
        raise UserError(f"{name}: {where}: {first['msg']}; mend the file") from None


def load(path: str | Path) -> Rubric:
    """The rubric of a file, or of a name among the shipped ones (`content`, `attribution`, `fate`)."""
    path = Path(path)
    if not path.suffix and not path.exists():
        path = HOME / f"{path.name}.yaml"
    return _rubric(plain_yaml.load(path, "a rubric file"), str(path))


@cache
def shipped(name: str) -> Rubric:
    """A rubric that comes with the project, read once."""
    return load(HOME / f"{name}.yaml")
