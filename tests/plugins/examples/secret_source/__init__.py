"""Secrets from a file of NAME=value lines, `secrets.example-file.path` in the home."""

from agent.secret_sources.base import ErrorKind, FetchResult, SecretSource, is_valid_env_name


class FileSource(SecretSource):
    """Gives everything that the file has."""

    name = "example-file"
    label = "A file"
    shape = "bulk"
    scheme = "file"

    def config_schema(self):
        return {
            "enabled": {"description": "Master switch", "default": False},
            "path": {"description": "Name of the file below the home", "default": "secrets.txt"},
        }

    def fetch(self, cfg, home_path):
        result = FetchResult()
        try:
            text = (home_path / str(cfg.get("path") or "secrets.txt")).read_text(encoding="utf-8")
        except OSError as exc:
            result.error, result.error_kind = str(exc), ErrorKind.NOT_CONFIGURED
            return result
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if is_valid_env_name(name) and value:
                result.secrets[name] = value
            else:
                result.warnings.append(f"passed over: {name}")
        return result


def register(ctx):
    ctx.register_secret_source(FileSource())
