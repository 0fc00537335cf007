"""The progress bar."""

from seqmixer.bars import watched


def test_a_terminal_sees_a_bar_on_standard_error_that_says_what_is_done(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes standard error for a terminal then
    monkeypatch.setenv("TERM", "xterm")
    assert list(watched([3, 1, 2], "training text, de")) == [3, 1, 2]
    shown = capsys.readouterr()
    assert "training text, de" in shown.err
    assert "100%" in shown.err
    assert shown.out == ""


def test_a_file_sees_nothing(monkeypatch, capsys):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert list(watched([3, 1, 2], "training text, de")) == [3, 1, 2]
    assert capsys.readouterr() == ("", "")
