"""They fail."""


def test_the_answer():
    assert 6 * 9 == 42
