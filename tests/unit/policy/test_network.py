"""Hosts by their one spelling, entries of the lists, and what the table says about a destination."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_agent.config.settings import Settings
from hermes_agent.core.errors import ConfigError
from hermes_agent.policy.network import (
    MODES,
    HostTable,
    HostTables,
    InvalidHost,
    Mode,
    explain_unruled,
    groups,
    is_address,
    parse_entry,
    parse_host,
)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("ｅxample.org", "example.org"),
        ("example。org", "example.org"),
        ("a_b.example", "a_b.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0X7F000001", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("[::FFFF:7f00:1]", "127.0.0.1"),
    ],
)
def test_a_host_has_one_spelling(text, host):
    assert parse_host(text) == host
    assert is_address(host) == (host[0].isdecimal() or ":" in host)


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "a..b", "a.b..", "-a.b", "a-.b", "ex ample", "a/b", "a@b", "a:b", "1.2.3.4.5", "256.1.1.1", "x.0x1"),
        *("fe80::1%eth0", "[::1", "example.org\n", "a\0b", "a" * 64, ".".join(["a" * 60] * 5), "[a.example]", "*.x.y"),
    ],
)
def test_what_is_no_host_is_refused(text):
    with pytest.raises(InvalidHost):
        parse_host(text)


@pytest.mark.parametrize(
    ("entry", "host", "port", "covered"),
    [
        ("example.org", "example.org", 443, True),
        ("Example.org.", "example.org", 22, True),
        ("example.org", "example.org", 8443, False),
        ("example.org", "www.example.org", 443, False),
        ("example.org", "example.org.evil.example", 443, False),
        ("example.org", "notexample.org", 443, False),
        ("*.example.org", "www.example.org", 443, True),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "notexample.org", 443, False),
        ("example.org:8443", "example.org", 8443, True),
        ("example.org:8443", "example.org", 443, False),
        ("example.org:*", "example.org", 1, True),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("10.0.0.0/8", "10.1.2.3.example.org", 443, False),
        ("0x7f.1:5432", "127.0.0.1", 5432, True),
        ("[::1]:8080", "::1", 8080, True),
        ("fd00::/8", "fd00::5", 443, True),
        ("[fd00::]/8:99", "fd00::5", 99, True),
        ("::1", "::1", 443, True),
    ],
)
def test_an_entry_covers_what_it_names(entry, host, port, covered):
    assert parse_entry(entry).covers(host, port) is covered


@pytest.mark.parametrize(
    "text", ["", "*", "*.", "*.1.2.3.4", "a b", "x:0", "x:99999", "x:y", "x:", "10.0.0.1/8", "http://x"]
)
def test_an_entry_that_names_nothing_is_refused(text):
    with pytest.raises(InvalidHost):
        parse_entry(text)


def table(**config: Any) -> HostTable:
    values: dict[str, dict[str, Any]] = {"network": {}, "security": {}}
    for name, value in config.items():
        block, _, key = name.partition("_")
        values[block][key] = value
    return HostTable.of(Settings(values))


def test_a_denied_host_is_denied_at_each_port_though_it_is_listed():
    found = table(network_hosts=["*.example.org"], network_deny=["bad.example.org", "10.9.0.0/16"])
    assert found.judge("good.example.org", 443).verdict == "listed"
    assert found.judge("bad.example.org", 8443).verdict == "denied"
    assert found.judge("other.example", 443).verdict == "unlisted"
    assert found.denies_address("10.9.1.1", 1) and not found.denies_address("10.8.1.1", 1)


def test_the_blocklist_of_sites_is_part_of_the_table():
    found = table(network_hosts=["www.bad.example"], security_website_blocklist={"domains": ["bad.example"]})
    rule = found.judge("www.bad.example", 443)
    assert rule.verdict == "denied" and "website_blocklist" in rule.why
    assert found.judge("::1", 443).verdict == "unlisted"


def test_a_private_address_is_opened_by_an_entry_that_names_the_address():
    found = table(network_hosts=["10.1.0.0/16:5432", "*.example.org"])
    assert (
        found.opens_private("10.1.2.3", 5432)
        and not found.opens_private("10.1.2.3", 443)
        and not found.opens_private("127.0.0.1", 443)
    )
    assert table(security_allow_private_urls=True).opens_private("127.0.0.1", 443)


def test_a_group_stands_for_its_hosts_and_an_unknown_one_is_named():
    found = table(network_hosts=["group:github", "group:registries"])
    assert all(found.judge(host, 443).verdict == "listed" for host in (*groups()["github"], *groups()["python"]))
    assert found.judge(groups()["gitlab"][0], 443).verdict == "unlisted"
    with pytest.raises(ConfigError, match="'group:pyhton' is not a group; the groups are python, "):
        table(network_hosts=["group:pyhton"])


def test_every_group_has_hosts_that_are_understood():
    for name, hosts in groups().items():
        assert hosts and all(parse_entry(host).name == host for host in hosts), name


def test_a_broken_list_denies_everything():
    found = HostTables(lambda: Settings({"network": {"hosts": ["a b"]}})).current()
    assert found.judge("example.org", 443) == ("denied", found.broken) and "'a b'" in found.broken


def test_always_counts_at_once_and_is_written_once(tmp_path):
    tables = HostTables(lambda: Settings({"network": {"hosts": ["a.example"]}}), tmp_path)
    assert tables.current().judge("b.example", 443).verdict == "unlisted"
    tables.allow_always("b.example")
    assert tables.current().judge("b.example", 443).verdict == "listed"
    assert (tmp_path / "config.yaml").read_text().count("example") == 2


def test_whether_tools_are_restricted_is_known_until_the_config_or_an_answer_changes():
    open_, restricted = Settings({"network": {"tools": "on"}}), Settings({"network": {"deny": ["evil.example"]}})
    settings, reads = open_, []

    def read() -> Settings:
        reads.append(settings)
        return settings

    tables = HostTables(read)
    assert not tables.restricts_tools()
    reads.clear()
    assert not tables.restricts_tools() and reads == [open_]  # the lists are not read again
    settings = restricted
    assert tables.restricts_tools()
    settings = open_
    assert not tables.restricts_tools()
    tables.allow_always("a.example")
    reads.clear()
    assert not tables.restricts_tools() and len(reads) > 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["local", "docker", "singularity", "ssh", "modal", "a-plugin"])
def test_what_the_table_does_not_rule_is_said(mode: Mode, backend: str) -> None:
    said = explain_unruled(backend, Settings({"terminal": {"network": mode}}))
    if backend == "local":
        assert said == "" and "network of this machine" in explain_unruled(
            backend, Settings({"terminal": {"network": mode, "sandbox": "off"}})
        )
    elif backend in ("docker", "singularity"):
        wanted = {"off": "", "on": "the network of its engine"}.get(mode, "all of the network (`on`) or none")
        assert wanted in said and bool(wanted) == bool(said)
        assert "`network.deny` does not hold there" in explain_unruled(
            backend, Settings({"terminal": {"network": "on"}, "network": {"deny": ["evil.example"]}})
        )
    else:
        assert f"the network of the backend {backend}" in said
