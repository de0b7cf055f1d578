"""The pages of the documentation: their blocks of code, and how these run.

Of a page's blocks ``bash`` and ``python`` run, in its order, in a folder of its own, each in a
process of its own; ``text`` is shown only. What the reader of a page cannot see says the rest:

- ``<!-- not run: REASON -->`` on the line before a block: it is shown only.

A block that begins with ``# file: NAME`` is written to that file, whatever its language.
"""

import multiprocessing
import os
import re
import shlex
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"(?:^<!-- not run: (.+?) -->\n)?^( *)```(.*)\n((?:.*\n)*?) *```$", re.MULTILINE)
FILE = re.compile(r"# file: (\S+)\n")
RUN = ("bash", "python")
SHOWN = ("text",)
SHORTER = {
    # it is for a checkout: there it would install; here its last line is run
    "make fit": "fedlit fit --config quickstart.yaml --trainer.max_epochs 2",
    # more seeds, epochs, trials and baselines are more of the same; a second process would import
    # while it trains
    "fedlit compare hospitals.yaml --workers 2": "sed -i 's/max_epochs: [0-9]*/max_epochs: 2/' "
    "mine.yaml && fedlit compare hospitals.yaml --workers 1 --seeds 1:1 --baselines "
    "logistic_regression",
    "--trials 20": "--trials 2",
}
"""What stands in a block → what is run."""


@dataclass(frozen=True)
class Block:
    """A block of code.

    Args:
        place: page and line, to say where it is.
        language: of the block.
        text: what stands in it.
        reason: why it is not run; empty where it is.
    """

    place: str
    language: str
    text: str
    reason: str

    @property
    def file(self) -> str | None:
        """The file that it is, if it is one."""
        named = FILE.match(self.text)
        return named[1] if named else None


def blocks_of(page: str, text: str) -> list[Block]:
    """The blocks of a page."""
    found = []
    for match in BLOCK.finditer(text):
        reason, indent, language, code = match.groups()
        line = text.count("\n", 0, match.start(3)) + 1
        block = Block(
            f"{page}:{line}", language, textwrap.dedent(code) if indent else code, reason or ""
        )
        known = block.reason or block.file or language in (*RUN, *SHOWN)
        assert known, (
            f"{block.place}: nobody knows how to run {language or 'no language'!r}: see {__name__}"
        )
        found.append(block)
    return found


def read(page: str) -> str:
    """The Markdown of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def write(block: Block, folder: Path) -> None:
    """Write a block that is a file."""
    if block.file and not block.reason:
        path = folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")


def run(block: Block, folder: Path) -> None:
    """Run a block in a process of its own; commands of ``fedlit`` and Python in one that has
    imported everything."""
    if block.file:
        return write(block, folder)
    if block.reason or block.language in SHOWN:
        return None
    text = block.text
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line]
    if block.language == "python":
        commands = [["python", block.text]]
    elif re.search(r"[|&;<>$]", text) or not all(
        line.startswith(("fedlit ", "#")) for line in lines
    ):
        commands = [["bash", "-euo", "pipefail", "-c", text]]
    else:
        commands = [shlex.split(line, comments=True) for line in lines]
    out = folder.with_suffix(".out")
    for words in filter(None, commands):
        process = multiprocessing.get_context("forkserver").Process(
            target=_become, args=(words, folder, out)
        )
        process.start()
        process.join(1200)
        process.kill()  # what hangs, however slow the machine
        process.join()
        assert process.exitcode == 0, (
            f"{block.place}\n{block.text}\n{out.read_text(encoding='utf-8')}"
        )
    return None


def _become(words: list[str], folder: Path, out: Path) -> None:
    """Be a command: its output, folder and arguments; ends by leaving, as a command does."""
    with out.open("wb") as file:
        for own in (1, 2):
            os.dup2(file.fileno(), own)
    os.chdir(folder)
    sys.modules["__main__"] = main = type(sys)("__main__")
    if words[0] == "fedlit":
        from fedlit.__main__ import main as fedlit

        sys.argv = words
        sys.exit(fedlit())
    if words[0] == "bash":
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        os.execvp("bash", words)
    sys.path.insert(0, "")
    exec(compile(words[1], "<block>", "exec"), vars(main))
