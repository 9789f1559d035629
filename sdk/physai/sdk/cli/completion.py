"""`physai completion`: completes verbs, options and choices in a shell.

The script lists all words, so that completing starts no Python. Print it again after an upgrade.
"""

import argparse
from collections.abc import Iterator
from typing import Any, Literal, cast

from physai.sdk.cli.grammar import every_parser
from physai.sdk.cli.verb import verb

_BASH = """# Completion of physai. bash: eval "$(physai completion bash)"; zsh: eval "$(physai completion zsh)"
_physai() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" path="physai" known="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${COMP_WORDS[i]}" in
@PATHS@) path="$path ${COMP_WORDS[i]}" ;;
    esac
  done
  case "$path:$before" in
@CHOICES@  esac
  if [[ -z $known ]]; then
    case "$path" in
@WORDS@    esac
  fi
  COMPREPLY=($(compgen -W "$known" -- "$word"))
}
complete -o bashdefault -o default -F _physai physai
"""
_ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"


@verb(summary="print a script that completes commands in a shell")
def command(shell: Literal["bash", "zsh", "fish"]) -> int:
    """Print the script.

    Args:
        shell: for example: eval "$(physai completion bash)".
    """
    parsers = dict(_parsers())
    script = _fish(parsers) if shell == "fish" else _bash(parsers)
    print((_ZSH if shell == "zsh" else "") + script, end="")
    return 0


def _parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every verb and subcommand by its words, `physai sim validate`; verbs whose extra is missing are left out."""
    yield from _walk("physai", every_parser())


def _walk(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield path, parser
    for name, child in _children(parser).items():
        yield from _walk(f"{path} {name}", child)


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            found |= cast(Any, action).choices
    return found


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]  # pyright: ignore[reportPrivateUsage]


def _words(parser: argparse.ArgumentParser) -> list[str]:
    long = [word for action in _options(parser) for word in action.option_strings if word.startswith("--")]
    positional = [
        str(choice)
        for action in parser._actions  # pyright: ignore[reportPrivateUsage]
        if not action.option_strings and action.choices is not None
        for choice in action.choices
    ]
    return [*dict.fromkeys(positional), *long]


def _bash(parsers: dict[str, argparse.ArgumentParser]) -> str:
    # Words are names of verbs, options and choices, which contain nothing that a shell reads as more than a word.
    words = "".join(f'      "{path}") known="{" ".join(_words(parser))}" ;;\n' for path, parser in parsers.items())
    choices = "".join(
        f'    "{path}:{option}") known="{" ".join(map(str, action.choices))}" ;;\n'
        for path, parser in parsers.items()
        for action in _options(parser)
        if action.choices is not None
        for option in action.option_strings
    )
    paths = "|".join(f'"{path}"' for path in parsers if path != "physai")
    return _BASH.replace("@PATHS@", f"      {paths}").replace("@CHOICES@", choices).replace("@WORDS@", words)


def _fish(parsers: dict[str, argparse.ArgumentParser]) -> str:
    lines = ["# Completion of physai. physai completion fish | source"]
    for path, parser in parsers.items():
        verbs = path.split()[1:]
        children = _children(parser)
        seen = " and ".join(f"__fish_seen_subcommand_from {verb}" for verb in verbs) or "__fish_use_subcommand"
        if verbs and children:
            seen += f" and not __fish_seen_subcommand_from {' '.join(children)}"
        seen = seen.replace(" and ", "; and ")
        lines += [f"complete -c physai -n '{seen}' -f -a {name}" for name in children]
        for action in _options(parser):
            long = next((word[2:] for word in action.option_strings if word.startswith("--")), None)
            if long is not None:
                values = "" if action.choices is None else f" -x -a '{' '.join(map(str, action.choices))}'"
                lines.append(f"complete -c physai -n '{seen}' -l {long}{values}")
    return "\n".join(lines) + "\n"
