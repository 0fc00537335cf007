"""What a person sees of a run."""

from seqmixer.training import Terminal


def test_a_note_is_shown_as_it_is_with_its_brackets(capsys):
    Terminal().note("epoch 2, batch 7: sentences 'the [sep] dog [bold]'")
    assert capsys.readouterr().err == "epoch 2, batch 7: sentences 'the [sep] dog [bold]'\n"


def test_control_characters_of_data_are_spelled_and_not_obeyed(capsys):
    Terminal().note("sentences '\x1b[2J\x9b31m\r\x7f'")
    assert capsys.readouterr().err == "sentences '\\x1b[2J\\x9b31m\\r\\x7f'\n"
