"""Its own tests."""


def test_it_registers_its_tool(hermes_host):
    assert hermes_host is not None
