"""The likeliest encoding of short texts, as people have them in old files and pages."""

import codecs
import sys

import pytest

from specialists._kit.text import guess_encoding


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Die Größe beträgt fünf Meter; Übergröße möglich.", "cp1252"),
        ("Café crème à l'hôtel où l'on dîne, ça coûte 5 €.", "cp1252"),
        ("El niño comió piñas en España mañana. ¿Verdad?", "cp1252"),
        ("Smörgåsbord på Åland är gott", "cp1252"),
        ("São Paulo não é a capital do Brasil, mas lá há opções.", "cp1252"),
        ("Rødgrød med fløde på øen", "cp1252"),
        ("Müller", "cp1252"),
        ("naïve", "cp1252"),
        ("“quoted” text – with dashes… and ‘single’ ones", "cp1252"),
        ("5 m², 10 µg, 20 °C, ½ cup, ¼ l", "cp1252"),
        ("Zażółć gęślą jaźń, proszę bardzo państwa", "cp1250"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy", "cp1250"),
        ("Árvíztűrő tükörfúrógép", "cp1250"),
        ("Привет мир и все люди на земле, это тест", "cp1251"),
        ("Привет мир и все люди на земле, это тест", "koi8_r"),
        ("吾輩は猫である。名前はまだ無い。", "cp932"),
        ("吾輩は猫である。名前はまだ無い。", "euc_jp"),
        ("今天天气很好，我们去公园散步吧。", "gb18030"),
        ("今天天氣很好，我們去公園散步吧。", "big5"),
        ("안녕하세요 오늘은 날씨가 좋습니다", "cp949"),
        ("Καλημέρα κόσμε, αυτό είναι ένα κείμενο", "cp1253"),
        ("plain", "cp1252"),
        ("", "cp1252"),
    ],
)
def test_the_encoding_goes_by_the_letters(text: str, encoding: str) -> None:
    data = f"<p>{text}</p>".encode(encoding)
    assert data.decode(guess_encoding(data)) == f"<p>{text}</p>"


def test_a_character_cut_in_half_does_not_matter() -> None:
    assert guess_encoding(("あ" * 24_999 + "い漢字").encode("cp932") + b"\x82") == "cp932"


@pytest.mark.parametrize("data", [bytes(range(128, 256)) * 20, b"\x81" * 9, b"a\x81b\x8db"])
def test_what_is_no_text_is_given_an_encoding_too(data: bytes) -> None:
    assert codecs.lookup(guess_encoding(data)).name
    assert len(data.decode(guess_encoding(data), "replace")) > len(data) // 4


def test_without_charset_normalizer_it_is_western(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    assert guess_encoding("Привет мир".encode("koi8-r")) == "cp1252"
