from diva import demo


def test_demo_prints_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert demo.main() == 0
    printed = capsys.readouterr().out
    assert "acc_one_to_one" in printed
    assert "report.html" in printed
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert page.count("<tr>") > 10
    assert (tmp_path / "demo" / "digits.png").stat().st_size > 10_000
