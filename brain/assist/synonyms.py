"""Words for units, weekdays and languages, in English, German, French and Spanish."""

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


def _read(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


GROUPS = [frozenset(line) for line in (*_read(_GROUPS), *_read(_LANGUAGES))]
"""Words that mean the same value of an enumeration."""
LANGUAGES = {word: line[0] for line in _read(_LANGUAGES) for word in line[1:]}
"""Code of a language by its name."""
LANGUAGE_NAMES = {line[0]: line[1].capitalize() for line in _read(_LANGUAGES)}
AMBIGUOUS = frozenset({"hier", "in", "no", "it", "he"})
"""Values that are also common words; a message means them only in capitals."""
