"""Words of English, some German and a little of CJK, by what they do to a sentence. Data."""


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP = _set(
    "a about after all also am an and any are as at be been being but by ca can could d did do does doing done for "
    "from get gets go going got had has have having he her hers here him his how i if in into is it its itself just "
    "let me might mine much must my myself now of off ok okay on one or our ours out own please shall she should so "
    "some than that the their theirs them then there these they this those to too up us user users very was we well "
    "were what when where which while who whom whose why will with wo would yes you your yours aber als auch auf "
    "aus bei bin bist da dann das dass dem den der des die dir dich doch du ein eine einem einen einer eines er es "
    "euch eure fur hab habe haben habt hast hat hatte hatten ich ihm ihn ihr ihre ihren im ins ist ja kann mal man "
    "mein meine meinem meinen meiner meines mich mir mit nach nun nur ob oder schon sehr sein seine seinen sich sie "
    "sind um und uns unser unsere vom von vor war waren wenn wer werde wie wir wird zu zum zur nutzer benutzer "
    "我 你 您 他 她 它 们 們 的 了 是 在 有 很 和 也 就 都 着 過 过 呢 吗 嗎 吧 啊 请 請 "
    "私 僕 俺 は が を に の へ で と も よ ね だ 저 나 내 제 는 은 이 가 을 를 에 의 도 "
    "와 과 요 다"
)
"""Function words and pronouns, which tell nothing."""
NEGATIONS = _set(
    "not no never none nobody nothing neither nor without cannot lack lacks lacking dont doesnt didnt isnt arent wasnt "
    "werent cant wont hasnt havent wouldnt shouldnt longer anymore stopped quit nicht nichts nie niemals niemand "
    "kein keine keinen keinem keiner ohne weder aufgehort "
    "ne pas jamais rien aucun aucune sans guere nunca nada nadie ningun ninguno ninguna tampoco sin non niente nulla "
    "nessuno nessuna senza neanche nemmeno neppure niet geen nooit niemand niets zonder nao nem nenhum nenhuma ninguem "
    "sem "
    "不 没 沒 無 无 未 別 别 ん ぬ 않 안 못 없 아니"
)
HEDGES = _set("rarely hardly seldom barely scarcely kaum selten rarement raramente nauwelijks zelden")
"""Words that are nearly negations, and stay where they were said."""
COMMANDS = _set(
    "analyse analyze ask assume calculate check compare compose compute convert correct create define describe "
    "download draft edit evaluate explain extract fetch find fix generate give imagine improve judge let list look "
    "open paraphrase pay pretend print proofread quote rate read repeat rephrase review rewrite say search send show "
    "simulate solve suggest summarise summarize tell transfer translate verify visit write "
    "analysiere ubersetze uberprufe berechne beschreibe definiere entwirf erklare erstelle erzahle erzeuge fasse finde "
    "formuliere gib korrigiere lektoriere lies nimm offne prufe sag sage schreib schreibe suche uberarbeite "
    "uberweise vergleiche wiederhole zeig zeige zitiere"
)
"""Verbs in the imperative: what stands behind them is to be worked on, and was not said."""
LEADING = _set("hey hi ok okay so well and also please now brain just then bitte und dann mal")
COPULAS = _set("is are am was were be ist sind bin war waren est sono 是")
"""What stands on their two sides is the same."""
LISTING = _set("and or und oder 和 と")
OPPOSITES = {
    "to": _set("from out"), "into": _set("from out"), "from": _set("to into"), "in": _set("out"),
    "out": _set("in into"),
    "before": _set("after"), "after": _set("before"), "on": _set("off"), "off": _set("on"), "up": _set("down"),
    "down": _set("up"), "over": _set("under"), "under": _set("over"), "for": _set("against"), "against": _set("for"),
    "nach": _set("von aus vor"), "von": _set("nach zu"), "aus": _set("nach in"), "zu": _set("von"), "vor": _set("nach"),
    "fur": _set("gegen"), "gegen": _set("fur"), "an": _set("aus"), "uber": _set("unter"), "unter": _set("uber"),
}  # fmt: skip
"""Small words, of which it tells something which one stands before a word."""
COMPARING = _set("than als denn")
POSSESSIVES = _set("my our mein meine meinen meinem meiner unser unsere user users")
LIGHT = _set(
    "live lives living short shorter form sentence sentences important last once wrong schreiben geschrieben uber "
    "like likes liked love loves loved hate hates prefer prefers want wants wanted need needs know knows think "
    "thinks say says said tell told make makes made use uses used give take come see look find feel call called try "
    "keep ask asked good bad best better nice great new old big little many more most other same thing things lot "
    "kind really always often usually sometimes still today tomorrow yesterday day days time times week year years "
    "way again back remember morning evening night thank thanks hello hi hey please write wrote written explain "
    "work works worked working show list mean means word helpful help helped people person talk talked "
    "discuss discussed question answer mag magst mochte mochten will liebe weiss wissen sagen machen mache gut neu "
    "alt immer oft noch heute morgen gestern tag jahr jahre mal gern gerne lieblings arbeite arbeitet guten danke "
    "hallo bitte favourite favorite "
    "喜 欢 歡 爱 愛 想 要 好"
)
"""Words that two statements may share and still have nothing to do with each other."""
COUNTING = _set(
    "one two three four five six seven eight nine ten eleven twelve twenty hundred thousand first second third last "
    "next once twice zwei drei vier funf sechs sieben acht neun zehn erste zweite dritte letzte nachste"
)
"""Words that tell of a question nothing of what it is about."""
TIMES = _set(
    "today tomorrow yesterday morning noon afternoon evening night monday tuesday wednesday thursday friday saturday "
    "sunday january february march april may june july august september october november december heute morgen gestern "
    "montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar marz mai juni juli oktober dezember"
)
VALUES = TIMES | COUNTING
"""What a fact can say anew of the same."""
USER = _set("i we ich wir user users nutzer benutzer 我 私 僕 俺 나 저 내")
"""Who states a fact."""
PEOPLE = _set(
    "sister brother mother father mom mum dad mama papa parents wife husband partner fiance fiancee girlfriend "
    "boyfriend son daughter child children kid kids baby friend friends boss colleague colleagues neighbour "
    "neighbor uncle aunt cousin nephew niece grandmother grandfather grandma grandpa roommate flatmate teacher "
    "doctor patient client customer dog cat pet schwester bruder mutter vater eltern frau mann sohn tochter kind "
    "kinder freund freundin chef chefin kollege kollegin nachbar nachbarin onkel tante oma opa hund katze "
    "姐 妹 哥 弟 妈 爸 母 父 妻 夫 友"
)
"""Whom a sentence can be about instead of the user."""
ONESELF = _set("i me my we our us mine ich mich mir mein meine meinen wir uns unser 我 私 僕 俺 나 저 내")
UNREAL = _set(
    "if unless wish wishes would might maybe perhaps possibly probably almost nearly suppose supposing imagine "
    "pretend hypothetically want wants wanted hope hopes plan plans forget forgot ignore wrong false untrue joking "
    "kidding lie doubt doubts guess whether deny denies refuse refuses claim claims assume assumes assuming allegedly "
    "supposedly used formerly former previously ago ex wenn falls ob vielleicht wahrscheinlich fast bezweifle zweifle "
    "vermute angeblich wunsche mochte wurde ware vergiss falsch fruher ehemals wollte will "
    "如 果 想 希 忘"
)
"""Words that take something back, or say that it is not so, or no longer, or not yet."""
PAST = _set("was were had war waren hatte hatten")
OTHERS = PEOPLE | _set("he she they his their him everybody everyone somebody someone people 他 她 彼")
"""Whom else a sentence can be about."""
PREFERRING = _set(
    "like likes love loves hate hates dislike dislikes prefer prefers favourite favorite enjoy enjoys mag mogen "
    "liebe liebt hasse hasst bevorzuge lieber lieblings "
    "喜 欢 歡 爱 愛 讨 厌 好"
)
PERSONAL = _set("i am my me we our ich bin mein meine mir user users 我 私 僕 俺 저 나")
ARTICLES = _set("a an ein eine")
