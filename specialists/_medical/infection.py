"""Built in: infections: sore throat."""

from specialists._medical.calculator import Calculator, Example, Source
from specialists._medical.inputs import Choice, YesNo
from specialists._medical.patient import AGE, TEMPERATURE
from specialists._medical.steps import Limit, below, up_to

COUGH_WORDS = {"yes": "present", "no": "absent", "true": "present", "false": "absent"}

CALCULATORS = (
    Calculator(
        name="centor",
        title="Centor score, modified (McIsaac)",
        also="mcisaac, centor mcisaac, modified centor, strep throat, centor score, centor score "
        "modified mcisaac for strep pharyngitis",
        says="chance of streptococci in a sore throat",
        group="infection",
        inputs=(
            AGE.within(3, 120).scoring(below((15, 1), (45, 0), rest=-1)),
            YesNo(
                name="fever",
                text="above 38 °C, measured or told",
                points=1,
                also="history_of_fever",
                measured=(TEMPERATURE, Limit(">", 38)),
            ),
            Choice(
                name="cough",
                options={"absent": 1, "present": 0},
                words=COUGH_WORDS,
                scores=True,
                flags=(
                    ("cough_absent", "absent", "present"),
                    ("absence_of_cough", "absent", "present"),
                    ("no_cough", "absent", "present"),
                ),
            ),
            YesNo(
                name="exudate",
                text="or swelling of the tonsils",
                points=1,
                also="tonsillar_exudate tonsillar_swelling_or_exudate exudate_or_swelling_on_tonsils "
                "tonsillar_exudates exudates",
            ),
            YesNo(
                name="tender_nodes",
                text="tender or swollen anterior cervical nodes",
                points=1,
                also="tender_anterior_cervical_lymphadenopathy tender_swollen_anterior_cervical_lymph_nodes "
                "tender_lymph_nodes lymphadenopathy swollen_lymph_nodes cervical_lymphadenopathy",
            ),
        ),
        bands=up_to(
            (0, "1 to 2.5 % streptococci: no test, no antibiotic"),
            (1, "5 to 10 %: no test, no antibiotic"),
            (2, "11 to 17 %: test"),
            (3, "28 to 35 %: test"),
            rest="51 to 53 %: test, or treat",
        ),
        sources=(
            Source("McIsaac WJ et al. CMAJ 1998;158:75-83"),
            Source("Centor RM et al. Med Decis Making 1981;1:239-246", "10.1177/0272989X8100100304"),
        ),
        example=Example({"age": 10, "temperature": "38.6 C", "cough": "no", "exudate": "yes", "tender_nodes": "no"}, 4),
        replaces=("centor_mcisaac",),
    ),
    Calculator(
        name="feverpain",
        title="FeverPAIN",
        also="fever pain, feverpain score for strep pharyngitis",
        says="chance of streptococci in a sore throat, as used in Britain",
        group="infection",
        inputs=(
            YesNo(
                name="fever",
                text="in the last 24 hours",
                points=1,
                also="fever_24_hours fever_in_past_24_hours fever_in_the_past_24_hours",
            ),
            YesNo(name="purulence", text="pus on the tonsils", points=1, also="purulent_tonsils pus"),
            YesNo(
                name="attend_rapidly",
                text="symptoms for at most 3 days",
                points=1,
                also="symptom_onset_3_days symptom_onset_within_3_days attends_rapidly",
            ),
            YesNo(
                name="inflamed_tonsils",
                text="severely",
                points=1,
                also="severe_tonsil_inflammation severely_inflamed_tonsils",
            ),
            Choice(
                name="cough_or_coryza",
                options={"absent": 1, "present": 0},
                words=COUGH_WORDS,
                scores=True,
                also="cough cough_or_cold",
                flags=(
                    ("absence_of_cough_or_coryza", "absent", "present"),
                    ("no_cough_or_coryza", "absent", "present"),
                    ("absence_of_cough", "absent", "present"),
                    ("no_cough", "absent", "present"),
                ),
            ),
        ),
        bands=up_to(
            (1, "13 to 18 % streptococci: no antibiotic"),
            (3, "34 to 40 %: delayed antibiotic"),
            rest="62 to 65 %: consider an antibiotic",
        ),
        sources=(Source("Little P et al. BMJ 2013;347:f5806", "10.1136/bmj.f5806"),),
        example=Example(
            {
                "fever": "yes",
                "purulence": "yes",
                "attend_rapidly": "no",
                "inflamed_tonsils": "yes",
                "cough_or_coryza": "absent",
            },
            4,
        ),
    ),
)
