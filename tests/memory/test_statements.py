"""What a new fact is to the known ones: the same, a correction, a possible contradiction, or none of these."""

import time

import pytest
from stores import NOON

from brain.memory.statements import Single, category_of, judged, of_one_subject, single
from brain.memory.terms import alike
from brain.messages import Category, Item


@pytest.mark.parametrize(
    ("text", "slot", "value"),
    [
        ("My name is Bob", "name", "bob"),
        ("call me Al", "name", "al"),
        ("The user is called Ada", "name", "ada"),
        ("The user wants to be called Ada", "name", "ada"),
        ("I'm 43 years old", "age", "43"),
        ("User is 44 years old", "age", "44"),
        ("my birthday is on May 3rd", "birthday", "may 3"),
        ("I was born on 3 May 1980", "birthday", "3 may 1980"),
        ("I was born in Berlin", "birthplace", "berlin"),
        ("I live in Berlin", "home", "berlin"),
        ("The user lives in Oslo, Norway", "home", "oslo norway"),
        ("I've moved to Hamburg", "home", "hamburg"),
        ("I work at Acme", "employer", "acme"),
        ("user works for Foo", "employer", "foo"),
        ("I work as a nurse", "work", "nurse"),
        ("My favourite colour is blue", "colour favourite", "blue"),
        ("user's favorite color is green", "colour favourite", "green"),
        ("Favourite colour is green", "colour favourite", "green"),
        ("Blue is my favourite colour", "colour favourite", "blue"),
        ("my sister's name is Eva", "name sister", "eva"),
        ("Remember that I live in Rome!", "home", "rome"),
        ("Ich wohne in Köln", "home", "koln"),
        ("Ich heiße Jörg", "name", "jorg"),
        ("mein Lieblingsessen ist Pizza", "lieblingsessen", "pizza"),
        ("Ich bin 30 Jahre alt", "age", "30"),
        ("Ich arbeite bei Acme", "employer", "acme"),
        ("Ich wurde in Bonn geboren", "birthplace", "bonn"),
        ("Ich bin am 3.5.1980 geboren", "birthday", "3.5.1980"),
        ("我叫小明", "name", "小 明"),
        ("我住在北京", "home", "北 京"),
        ("我今年30岁", "age", "30"),
        ("私の名前は太郎です", "name", "太 郎"),
        ("私は東京に住んでいます", "home", "東 京"),
    ],
)
def test_some_statements_are_true_of_one_value_only(text: str, slot: str, value: str) -> None:
    assert single(text) == Single(slot, tuple(value.split()))


@pytest.mark.parametrize(
    "text",
    [
        "my sister is a nurse",  # and many other things
        "My sister lives in Bergen",
        "She lives in Bergen",
        "The capital of France is Paris",
        "I live in Oslo and my cat is old",
        "I live with my wife",
        "The user prefers tea",
        "I am vegetarian",
        "my plan for the summer after the next long winter is a walk",
        "",
    ],
)
def test_others_are_not(text: str) -> None:
    assert single(text) is None


def fact(text: str, item_id: str = "f1") -> Item:
    return Item(item_id, "fact", text, NOON, NOON)


@pytest.mark.parametrize(
    ("known", "new", "verdict"),
    [
        # the same
        ("I am allergic to penicillin", "The user has a penicillin allergy", "same"),
        ("My favourite colour is blue", "Blue is my favourite colour", "same"),
        ("I live in Berlin, Germany", "User lives in Berlin", "same"),
        ("我不喜欢咖啡", "用户不喜欢咖啡", "same"),
        ("I lived in Paris in 2010", "In 2010 the user lived in Paris", "same"),
        # the same words, and something else
        ("I prefer tea to coffee", "I prefer coffee to tea", "against"),
        ("Anna is older than Tom", "Tom is older than Anna", "against"),
        ("I moved from Oslo to Bergen", "I moved to Oslo from Bergen", "against"),
        ("I rarely eat meat", "I eat meat", "against"),
        # another value
        ("I live in Berlin", "I live in Oslo", "corrects"),
        ("I live in Berlin", "I moved to Oslo", "corrects"),
        ("I live in Berlin", "I live in Berlin, Germany", "corrects"),
        ("My name is Robert", "Call me Bob", "corrects"),
        ("My favourite colour is blue", "the user's favorite color is red", "corrects"),
        ("I am 42 years old", "I am 43 years old", "corrects"),
        ("Ich wohne in Köln", "Ich wohne in Bonn", "corrects"),
        ("我住在北京", "我住在上海", "corrects"),
        # the opposite
        ("I like coffee", "I don't like coffee", "corrects"),
        ("I have no asthma", "I have asthma", "corrects"),
        ("Ich mag Kaffee", "Ich mag keinen Kaffee", "corrects"),
        # near
        ("I like coffee", "I hate coffee", "against"),
        ("I like coffee in the morning", "coffee makes me nervous", "against"),
        # nothing to do with each other
        ("I like coffee", "I like tea", "none"),
        ("I work at Acme", "I work as a nurse", "none"),
        ("I was born in Berlin", "I was born in 1980", "none"),
        ("My car is red", "My car is a Volvo", "none"),
        ("My sister is a nurse", "My sister is allergic to nuts", "none"),
        ("My sister lives in Bergen", "I live in Oslo", "none"),
        ("I am vegetarian", "I love steak", "none"),
    ],
)
def test_what_a_new_fact_is_to_a_known_one(known: str, new: str, verdict: str) -> None:
    found = judged(new, [fact(known)])
    told = "same" if found.same else "corrects" if found.corrects else "against" if found.against else "none"
    assert told == verdict


@pytest.mark.parametrize(
    ("known", "new", "about_the_same"),
    [
        ("I live in Berlin", "I moved to Oslo", True),
        ("My name is Robert", "Call me Bob", True),
        ("favourite colour: blue", "My favourite colour is red", True),
        ("My car is red", "My car is a blue Volvo", True),
        ("My sister lives in Bergen", "My sister lives in Oslo", True),
        ("The meeting is on Monday", "The meeting is on Tuesday", True),
        ("I have 2 cats", "I have three cats", True),
        ("My cat is called Ida", "the cat is Zoe", True),
        ("Nora came", "Nora left", True),
        ("I am allergic to nuts", "I'm not allergic to nuts any more", True),
        ("I am allergic to nuts", "I am allergic to nuts and eggs", True),
        ("Ich mag Kaffee", "Ich mag keinen Kaffee", True),
        ("我住在北京", "我住在上海", True),
        ("I am allergic to penicillin", "Summarise this page", False),
        ("I am allergic to penicillin", "I am allergic to nuts", False),
        ("I am vegetarian", "I live in Oslo", False),
        ("I like coffee", "I like tea", False),
        ("I work at Acme", "I work as a nurse", False),
        ("My name is Robert", "My favourite colour is red", False),
        ("5", "7", False),
    ],
)
def test_a_correction_is_about_the_same(known: str, new: str, about_the_same: bool) -> None:
    assert of_one_subject(new, known) is about_the_same


@pytest.mark.parametrize(
    ("one", "other", "like"),
    [
        ("allergy", "allergic", True),
        ("allergies", "allergic", True),
        ("live", "living", True),
        ("prefer", "preferred", True),
        ("stop", "stopping", True),
        ("wohne", "wohnst", True),
        ("klein", "kleinen", True),
        ("car", "cars", True),
        ("car", "carpet", False),
        ("marianne", "mariana", False),
        ("paris", "parish", False),
        ("2019", "201", False),
        ("vegan", "vegetarian", False),
        ("不", "不", True),
        ("京", "東", False),
    ],
)
def test_words_are_alike_that_only_end_otherwise(one: str, other: str, like: bool) -> None:
    assert alike(one, other) is alike(other, one) is like


def test_what_says_the_same_goes_before_what_is_corrected() -> None:
    known = [fact("I live in Berlin", "f1"), fact("I live in Oslo", "f2")]
    assert judged("The user lives in Oslo", known).same == known[1]


def test_what_means_something_alike_may_contradict() -> None:
    known = [fact("I am vegetarian", "f1"), fact("I play chess", "f2")]
    assert judged("I love steak", known, {"f1"}).against == (known[0],)


def test_only_a_few_possible_contradictions_are_told() -> None:
    known = [fact(f"I hate coffee and item{n}", f"f{n}") for n in range(9)]
    assert len(judged("coffee", known).against) == 5


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("I like tea", "preferences"),
        ("My favourite colour is blue", "preferences"),
        ("Ich mag keinen Kaffee", "preferences"),
        ("I am vegetarian", "personal"),
        ("The user lives in Oslo", "personal"),
        ("我住在北京", "personal"),
        ("The office closes at five", "general"),
    ],
)
def test_a_fact_has_a_likely_category(text: str, category: Category) -> None:
    assert category_of(text) == category


@pytest.mark.parametrize("repeated", ["my is ", "i live in ", "is my favourite ", "am have ", "我的是", "born in 1 "])
def test_no_text_takes_long(repeated: str) -> None:
    text = (repeated * 100)[:500]
    began = time.process_time()
    judged(text, [fact(text[::-1])] * 60)
    assert time.process_time() - began < 0.5
