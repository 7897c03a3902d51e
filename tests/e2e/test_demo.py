from functools import partial

from diva import DIVA, demo


def test_demo_prints_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "DIVA", partial(DIVA, n_epochs=12))  # how good it is, tests/recovery asks
    assert demo.main() == 0
    printed = capsys.readouterr().out
    assert "acc_one_to_one" in printed
    assert "report.html" in printed
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert page.count("<tr>") > 10
    assert (tmp_path / "demo" / "digits.png").stat().st_size > 10_000
