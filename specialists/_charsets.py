"""The likeliest encoding of a text that is not UTF-8 and names none. Imports nothing of Brain."""

import codecs
import re

_SAMPLE = 50_000
_FOREIGN = re.compile(rb"[\x80-\xff]{3,}")
"""Letters of other scripts stand side by side, accented Latin ones between plain ones."""
_OTHERS = (
    "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1251", "koi8_r", "iso8859_5", "cp1253", "cp1255", "cp1256",
    "cp874",
)  # fmt: skip
_CENTRAL = re.compile(r"(?<=\w)[¹³¿£¼¾œŸ¶](?=\w)|(?<=\w)[¹³¿](?=\W)|(?<!\w)[³¿](?=[a-zà-ÿ])|[šžŠŽ]")
"""What Polish and Czech letters look like when they are taken for Western ones."""


def likeliest(data: bytes) -> str:
    """The name of the encoding: that of Western Europe, unless the letters speak for another one."""
    begun = re.search(rb"[\x80-\xff]", data)
    sample = data[begun.start() if begun else 0 :][:_SAMPLE]
    foreign = sum(map(len, _FOREIGN.findall(sample))) * 2 > len(re.findall(rb"[\x80-\xff]", sample))
    return _of_others(sample) if foreign else _of_latin(sample)


def _of_latin(sample: bytes) -> str:
    try:
        text = codecs.getincrementaldecoder("cp1252")().decode(sample)
    except UnicodeDecodeError:
        return "cp1250" if _decodes(sample, "cp1250") else "cp1252"
    hungarian = re.search("[õûÕÛ]", text) and re.search("[áÁ]", text) and not re.search("[ãçàèêñ]", text)
    central = hungarian or _CENTRAL.search(text)
    return "cp1250" if central and _decodes(sample, "cp1250") else "cp1252"


def _of_others(sample: bytes) -> str:
    for japanese in ("cp932", "euc_jp"):
        if _decodes(sample, japanese) and re.search("[ぁ-ん]", sample.decode(japanese, "ignore")):
            return japanese
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return "cp1252"
    best = from_bytes(sample, cp_isolation=list(_OTHERS)).best()
    return best.encoding if best else "cp1252"


def _decodes(sample: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return False
    return True
