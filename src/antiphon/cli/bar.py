"""The progress bar: on stderr, only in a terminal, gone when the call is."""

import sys
from typing import TYPE_CHECKING

from antiphon.cli.text import line

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """Shows what a server reports; hides while a person is asked."""

    def __init__(self) -> None:
        self._shown: Progress | None = None
        self._is_terminal = sys.stderr.isatty()

    def report(self, progress: object, total: object, message: object) -> None:
        if not self._is_terminal or not isinstance(progress, int | float):
            return
        if self._shown is None:
            self._shown = _progress()
            self._shown.start()
        is_first = not self._shown.task_ids
        if is_first:
            self._shown.add_task("", total=None)
        self._shown.update(
            self._shown.task_ids[0],
            completed=progress,
            total=total if isinstance(total, int | float) else None,
            description=line(message) if isinstance(message, str) else "",
            refresh=is_first,
        )

    def hide(self) -> None:
        shown, self._shown = self._shown, None
        if shown is not None:
            shown.stop()


def _progress() -> "Progress":
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from antiphon.cli.show import on_stderr

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=on_stderr(), transient=True)
