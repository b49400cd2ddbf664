"""Words for units, weekdays, languages and currencies, in English, German, French and Spanish."""

_GROUPS = """
km kilometer kilometers kilometre kilometres kms kilometern kilomètre kilomètres kilómetro kilómetros
mi mile miles meile meilen mille milles milla millas
m meter meters metre metres metern mètre mètres metros
cm centimeter centimeters centimetre centimetres zentimeter centimètres centímetros
mm millimeter millimeters millimetre millimetres millimètres milímetros
ft foot feet fuß fuss pied pieds pie pies
in inch inches zoll pouce pouces pulgada pulgadas
yd yard yards
kg kilo kilos kilogram kilograms kilogramme kilogrammes kilogramm kilogramos
g gram grams gramme grammes gramm gramos
lb lbs pound pounds pfund livre livres libra libras
oz ounce ounces unze unzen once onces onza onzas
l liter liters litre litres litern litro litros
ml milliliter milliliters millilitre millilitres
gal gallon gallons gallone gallonen galón galones
c celsius centigrade °c
f fahrenheit °f
k kelvin
metric celsius centigrade °c metrisch métrique métrico
imperial fahrenheit °f us-units
monday mon montag lundi lunes
tuesday tue tues dienstag mardi martes
wednesday wed weds mittwoch mercredi miércoles
thursday thu thur thurs donnerstag jeudi jueves
friday fri freitag vendredi viernes
saturday sat samstag sonnabend samedi sábado
sunday sun sonntag dimanche domingo
today heute aujourd'hui hoy
tomorrow morgen demain mañana
yesterday gestern hier ayer
car driving drive auto voiture coche
walking walk foot fuß pied pie
cycling bike bicycle cycle fahrrad vélo bici bicicleta
transit train bus tram subway metro zug tren
low cheap budget günstig
small s klein petit pequeño
medium m mittel moyen mediano
large l groß grand grande big
"""
_LANGUAGES = """
en english englisch englische anglais inglés inglese
de german deutsch deutsche allemand alemán tedesco
fr french französisch französische français francés francese
es spanish spanisch spanische español espagnol castellano
it italian italienisch italien italiano
pt portuguese portugiesisch portugais portugués
nl dutch niederländisch néerlandais holländisch neerlandés
pl polish polnisch polonais polaco
cs czech tschechisch tchèque checo
da danish dänisch danois danés
sv swedish schwedisch suédois sueco
no norwegian norwegisch norvégien noruego
fi finnish finnisch finnois finlandés
el greek griechisch grec griego
tr turkish türkisch turc turco
ru russian russisch russe ruso
uk ukrainian ukrainisch ukrainien ucraniano
ar arabic arabisch arabe árabe
he hebrew hebräisch hébreu hebreo
hi hindi
zh chinese chinesisch chinois chino mandarin
ja japanese japanisch japonais japonés
ko korean koreanisch coréen coreano
la latin latein lateinisch
"""
_CURRENCIES = """
USD dollar dollars dólar dólares buck bucks $
EUR euro euros €
GBP pound pounds pfund quid sterling livres libras £
JPY yen ¥
CHF franc francs franken franco francos rappen
CNY yuan renminbi rmb
INR rupee rupees rupien roupies rupias ₹
PLN zloty złoty zlotys zlotych
SEK krona kronor
DKK krone kroner kronen couronnes coronas
CZK koruna korun kč
TRY lira lire
MXN peso pesos
BRL real reais
KRW won
ILS shekel shekels
ZAR rand
THB baht
HUF forint forints
RUB ruble rubles rubel roubles
UAH hryvnia
VND dong
RON leu lei
"""
_COUNTRIES = """
USD us u.s american americans amerikanische us-dollar américain américains estadounidense estadounidenses
CAD canadian canada kanadische kanadischen canadien canadiens canadiense canadienses
AUD aussie australian australia australische australischen australien australiens australiano australianos
NZD zealand kiwi neuseeland neuseeländische
HKD kong
SGD singapore
CHF swiss schweizer suisse suisses suizo suizos
GBP british english uk britische britischen
DKK danish dänische dänischen danoises danesas
NOK norwegian norwegische norwegischen norvégiennes noruegas
SEK swedish schwedische schwedischen suédoises suecas
ISK icelandic isländische
CZK czech tschechische tschechischen tchèques checas
PLN polish polnische
MXN mexican mexico mexikanische mexicain mexicains mexicano mexicanos
ARS argentine argentinian argentinische argentino argentinos
COP colombian colombiano colombianos
CLP chilean chileno chilenos
INR indian indische indischen
PKR pakistani
IDR indonesian rupiah
TRY turkish türkische
JPY japanese japanische
CNY chinese chinesische
KRW korean
BRL brazilian
ZAR african
EGP egyptian
AED emirati dirham dirhams
SAR saudi riyal
"""
_WITHOUT_WORDS = "NOK CAD AUD NZD HKD SGD ISK HUF RON ARS COP CLP PKR IDR EGP AED SAR PHP MYR TWD MAD NGN KES BTC ETH"
_ENGLISH_WORDS = frozenset(
    {"try", "all", "top", "cad", "mad", "cop", "won", "real", "sar", "hier", "in", "no", "it", "he"}
)


def _read(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


GROUPS = [frozenset(line) for line in (*_read(_GROUPS), *_read(_LANGUAGES))]
"""Words that mean the same value of an enumeration."""
LANGUAGES = {word: line[0] for line in _read(_LANGUAGES) for word in line[1:]}
"""Code of a language by its name."""
LANGUAGE_NAMES = {line[0]: line[1].capitalize() for line in _read(_LANGUAGES)}
CURRENCIES = {word: line[0] for line in _read(_CURRENCIES) for word in line[1:]}
"""Code of a currency by its name. An adjective in `COUNTRIES` may change it."""
COUNTRIES = {word: line[0] for line in _read(_COUNTRIES) for word in line[1:]}
"""Code of a currency by the adjective before or after its name."""
CODES = frozenset([*CURRENCIES.values(), *COUNTRIES.values(), *_WITHOUT_WORDS.split()])
AMBIGUOUS = _ENGLISH_WORDS
"""Values that are also common words; a message means them only in capitals."""
