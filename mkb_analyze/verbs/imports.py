"""Verbs that read studies made elsewhere."""

from typing import Any

from mkb_analyze.console import Answer


class Import:
    """Read a study made elsewhere.

    Examples:
      mkb-analyze import notes my_skills --study outputs/skills
      mkb-analyze import upstream results/my-model --study outputs/my-study
    """

    def notes(self, folder: str, study: str) -> Answer:
        """Make a study of every Markdown note below a folder (a skill library).

        Example:
          mkb-analyze import notes my_skills --study outputs/skills
        """
        from mkb_analyze.imports.notes import import_notes

        return _said(import_notes(str(folder), str(study)), "notes", study)

    def upstream(self, store: str, study: str) -> Answer:
        """Read one model's store of the published harness (results/<model>/); call it once a model, same study.

        Example:
          mkb-analyze import upstream results/my-model --study outputs/my-study
        """
        from mkb_analyze.imports.upstream import import_upstream

        return _said(import_upstream(str(store), str(study)), "attempts", study)


def _said(done: Any, what: str, study: Any) -> Answer:
    lines = [f"{done.n_new} {what} added, {done.n_present} there already, {len(done.left_out)} left out: {study}"]
    lines += [f"  left out: {line}" for line in done.left_out]
    return Answer("\n".join(lines), {"n_new": done.n_new, "n_present": done.n_present, "left_out": list(done.left_out)})
