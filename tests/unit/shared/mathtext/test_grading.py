"""Grading: tables of right and wrong answers, real ones, and hostile ones."""

import csv
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.mathtext.answers import LONGEST, extract, normal_form
from shared.mathtext.equivalence import compare, family, shape
from shared.mathtext.mathematics import equal_strict, grade, normalise
from shared.mathtext.values import library_verdict
from tests.unit.cases import named
from tests.unit.datasets import DATA, needs
from tests.unit.grading.pairs import cases, differences, on_page, pairs

# Answers beside gold answers, by what is easily read wrongly: right ones, and about as many that only look right.

# fmt: off

RIGHT = {
    "scales": [
        ("2.5 billion", "2500000000"), ("2.5 billion", r"2.5\times 10^9"), ("3 trillion", r"3\cdot10^{12}"),
        ("1.2 thousand", "1200"), ("7 hundred", "700"), ("4 dozen eggs", "48"), ("half a dozen", "6"),
        ("half a million", "500000"), ("a dozen", "12"), ("3 score", "60"), ("2 gross", "288"),
        (r"2.5\text{ million}", "2500000"), (r"\$2.5 \text{ million}", "2500000"), ("$3 million", "3000000"),
        ("5 million dollars", r"\$5{,}000{,}000"), (r"\frac{1}{2}\text{ million}", "500000"),
        ("2 1/2 million", "2500000"), ("1,500 thousand", "1500000"), ("two million", "2000000"),
        ("2 million people", "2000000"), ("3 hundred thousand", "300000"), ("€2 million", "2000000"),
        ("1.5bn", "1500000000"), ("3.2 millions", "3200000"), ("x = 2 million", "2000000"),
        ("2 million, 3 million", "2000000, 3000000"),
        ("3,000 people", "3000"), ("ten percent", r"10\%"), ("5 per cent", "0.05"), ("0.5 million people", "500000"),
        (r"1.2 \times 10^6", "1.2 million"), ("eighty percent", r"80\%"), ("15 hundredths", "0.15"), ("6 sixths", "1"),
        ("8 thirds", r"2\frac23"), ("four and a quarter", "4.25"), ("minus three quarters", "-3/4"),
        ("negative seven", "-7"), ("12 squared", "144"), ("3 cubed", "27"), (r"3 \text{ squared}", "9"),
    ],
    "parts": [
        ("7 tenths", r"\frac{7}{10}"), ("3 halves", "1.5"), ("3 quarters", "0.75"), ("5 eighths", r"\frac58"),
        ("9 hundredths", "0.09"), ("12 thousandths", "0.012"), ("2 thirds", r"\frac23"),
        (r"3\text{ fourths}", r"\frac34"), ("7 tenths of a mile", "0.7"), ("one half", "0.5"),
        ("two thirds", r"\frac23"), ("three quarters", "0.75"), ("a quarter", "0.25"), ("one tenth", "0.1"),
        ("seven eighths", "7/8"), ("minus one half", "-0.5"), ("twenty-five hundredths", r"\frac14"),
        ("1 half", "0.5"), ("one-third", "1/3"),
    ],
    "spelled": [
        ("six thousand", "6000"), ("minus 2", "-2"), ("minus two", "-2"), ("negative five", "-5"),
        ("negative 3.5", "-3.5"), (r"\text{negative }\frac12", r"-\frac12"), ("one fourth", "0.25"),
        ("three and one half", "3.5"), ("two and a half", "2.5"), ("two and three quarters", "2.75"),
        ("twenty-one", "21"), ("twenty one", "21"), ("one hundred and five", "105"), ("one hundred five", "105"),
        ("forty-two", "42"), ("one thousand two hundred thirty-four", "1234"), ("Six Thousand", "6000"),
        (r"\text{six thousand}", "6000"), ("six thousand dollars", "6000"), ("five apples", "5"), ("zero", "0"),
        ("three point one four", "3.14"), ("two hundred", "200"), ("twelve percent", r"12\%"),
        ("two and three", "2, 3"), ("3 and a half", "3.5"), ("ninety nine", "99"), ("one million", "1000000"),
        ("nineteen hundred", "1900"), ("five squared", "25"), ("two thousand and twenty-four", "2024"),
    ],
    "powers": [
        ("5 squared", "25"), ("2 cubed", "8"), ("x squared", "x^2"), ("5 cm squared", r"5\text{ cm}^2"),
        ("5 meters cubed", r"5\text{ m}^3"), ("3 times 4", "12"), ("7 minus 2", "5"), ("6 divided by 2", "3"),
    ],
    "nouns": [
        ("12 apples", "12"), ("36 square units", "36"), (r"5 \text{ hours}", "5"), ("36人", "36"), ("3个", "3"),
        ("240 ways", "240"), (r"240\text{ ways.}", "240"), ("12 red apples", "12"), ("5 black cats", "5"),
        ("14 right triangles", "14"), (r"14\text{ distinct integers}", "14"), ("7 people", "7"), ("4 children", "4"),
        ("1 apple", "1"), ("1/2 cup", "0.5"), (r"\frac34\text{ cup}", "0.75"), ("3 cups of sugar", "3"),
        ("2 slices of pizza", "2"), ("5 apples per day", "5"), ("5 dollars per hour", "5"), ("12 USD", "12"),
        (r"5\text{ kPa}", "5"), (r"7\text{ units}^2", "7"), ("8 sq units", "8"), ("8 sq. units", "8"),
        (r"8\text{ sq. units}", "8"), ("5 apples left", "5"), ("40 in total", "40"), ("40 students in total", "40"),
        ("12 years old", "12"), ("12 years old", "12 years"), ("5个苹果", "5"), ("12名学生", "12"), ("8支铅笔", "8"),
        ("24本书", "24"), ("15岁", "15"), ("3种", "3"), ("6条边", "6"), ("36 cubic units", "36"), ("45 mph", "45"),
        ("5 positive integers", "5"), ("6 possible values", "6"), ("3 solutions", "3"), ("x=3 apples", "3"),
        ("0.5 miles", "0.5"), ("3 o'clock", "3"), ("4 edges", "4"), ("12 possible outcomes", "12"), ("5 days", "5"),
        ("9 men", "9"), (r"20\text{ students per class}", "20"), ("12 cm", "12"), ("5 hrs", "5 hours"),
        ("5 sec", "5 s"),
        ("25 marbles", "25"), ("25 blue marbles", "25"), ("8 different ways", "8"), ("3 hours", "3"),
        ("100 square feet", "100"), ("60 degrees", "60"), ("45 degrees", r"45^\circ"), ("7 boxes", "7"),
        ("12 girls", "12"), ("5 integers", "5"), ("15 minutes", "15"), ("2 pizzas", "2"), ("9 tiles", "9"),
        ("20 cookies per box", "20"), ("4 pairs of shoes", "4"), ("300 calories", "300"), ("6 faces", "6"),
        ("10 points", "10"), ("3 wolves", "3"), ("5 women", "5"), (r"10\text{ mL}", "10"), (r"5\text{ N}", "5"),
        (r"9.8\text{ m/s}^2", "9.8"), ("24 cubic centimeters", "24 cm^3"), ("8名同学", "8"), ("8棵树", "8"),
        ("100元钱", "100"), ("6只鸡", "6"),
    ],
    "chinese words": [
        ("3.5万人", "35000"), ("3倍", "3"), ("三次", "3"),
    ],
    "chinese numbers": [
        ("一亿三千万", "1.3亿"), ("七千二百四十五亿三千零一十万六千", "724530106000"), ("三万亿", "3000000000000"),
        ("三千万", "30000000"), ("3千万", "30000000"), ("3.5万", "35000"), ("3.5亿", "350000000"),
        ("三点五万", "35000"), ("两万", "20000"), ("二万五千", "25000"), ("两万五", "25000"), ("一百二", "120"),
        ("一百零二", "102"), ("三千五", "3500"), ("两百", "200"), ("两", "2"), ("一半", "0.5"), ("半", "0.5"),
        ("半小时", "30分钟"), ("两个半", "2.5"), ("两个半小时", "150分钟"), ("三天半", "3.5天"),
        ("百分之二十", r"20\%"), ("百分之零点五", r"0.5\%"), ("百分之12", r"12\%"), ("五分之三", r"\frac35"),
        ("千分之三", "0.003"), ("二又三分之一", r"\frac73"), ("负三分之二", r"-\frac23"), ("十分之七", "0.7"),
        ("十二", "12"), ("一千零一", "1001"), ("一千零一十", "1010"), ("五千零六万零三", "50060003"), ("5千克", "5"),
        ("5千克", "5000克"), ("5千", "5000"), ("12万5千", "125000"), ("5万元", "50000元"), ("二〇二四", "2024"),
        ("两亿三千万零五", "230000005"), ("3分之1", r"\frac13"), ("五亿", "500000000"),
        ("九千九百九十九万九千九百九十九", "99999999"), ("零点七五", "0.75"), ("负五", "-5"),
        ("5亿", "500000000"), ("二十亿", "2000000000"), ("三百二十一", "321"), ("一千二百万", "12000000"),
        ("四十万五千", "405000"), ("10万", "100000"), ("8千", "8000"), ("6百", "600"), ("两千", "2000"),
        ("四分之一", "0.25"), ("百分之五十", "0.5"), ("一又二分之一", "1.5"), ("半个", "0.5"),
        ("一个半小时", "90分钟"), ("一百万", "1000000"), ("一千零二十四", "1024"), ("一万二", "12000"),
        ("一万零二", "10002"),
    ],
    "small numbers": [
        (r"\frac{1}{1800!}", r"\frac{1}{1800!}"), (r"1-\frac{1}{2024!}", r"\frac{2024!-1}{2024!}"),
        (r"\frac{\sqrt2}{10^{50}}", r"\sqrt2\cdot10^{-50}"), (r"\sqrt2+\sqrt3-\sqrt{5+2\sqrt6}", "0"),
        ("0", r"\sqrt2+\sqrt3-\sqrt{5+2\sqrt6}"), (r"\sqrt{2}^{-2001}", r"\frac{1}{2^{1000}\sqrt2}"),
        ("2^{-1000}", r"\frac{1}{2^{1000}}"), (r"\frac{1}{e^{50}}", "e^{-50}"),
        (r"\cos\frac{\pi}{7}-\cos\frac{2\pi}{7}+\cos\frac{3\pi}{7}", r"\frac12"),
        (r"(1+\sqrt2)^{-300}", r"(\sqrt2-1)^{300}"), (r"e^{i\pi}+1", "0"),
        (r"\sqrt[3]{2+\sqrt5}+\sqrt[3]{2-\sqrt5}", "1"),
        (r"\sqrt{3}-\sqrt{2}", r"\frac{1}{\sqrt3+\sqrt2}"), (r"\sqrt{7+4\sqrt3}", r"2+\sqrt3"),
        (r"\sqrt[3]{7+5\sqrt2}", r"1+\sqrt2"), (r"\cos 36^\circ", r"\frac{1+\sqrt5}{4}"),
    ],
    "sets": [
        (r"\mathbb{R} - \{-7\}", r"(-\infty,-7)\cup(-7,\infty)"),
        (r"\mathbb{R}\setminus\{0,1\}", r"(-\infty,0)\cup(0,1)\cup(1,\infty)"),
        (r"\mathbb{R}\backslash\{3\}", r"x\ne3"), (r"(0,25)\setminus\{30\}", "(0,25)"),
        (r"\{1,2\}\cup\{2,3\}", r"\{1,2,3\}"), (r"\{1,2,3\}\cap\{2,3,4\}", r"\{2,3\}"),
        (r"\{1,2,3\}\setminus\{2\}", r"\{1,3\}"), (r"[0,5]\cap[3,8]", "[3,5]"), (r"[0,5]\cap(3,8)", "(3,5]"),
        (r"[1,2]\cup[2,3]", "[1,3]"), (r"(1,2]\cup(2,3)", "(1,3)"), (r"(-\infty,1)\cup\{1\}", r"x\le 1"),
        (r"(1,2)\cap(3,4)", r"\emptyset"), (r"[1,5]\cup[2,3]", "[1,5]"), (r"(-\infty,2)\cup(1,\infty)", r"\mathbb{R}"),
        (r"\mathbb{R}", r"(-\infty,2]\cup(2,\infty)"), (r"[1,2]\cup\{2\}", "[1,2]"),
        (r"([1,2]\cup[3,4])\cap[2,3]", r"\{2,3\}"), (r"[0,1]\setminus[0,1)", r"\{1\}"),
        (r"[0,\sqrt4]\cup[2,3]", "[0,3]"), (r"(0,\sqrt2)\cup[\sqrt2,2)", "(0,2)"), (r"x\in(-1,2)\cup[2,5)", "-1<x<5"),
        ("x>1, x<2", "(1,2)"), ("x<1, x>2", r"(-\infty,1)\cup(2,\infty)"),
        (r"x \ne 1 \text{ and } x\ne 2", r"\mathbb{R}\setminus\{1,2\}"), (r"x\ne1,2", r"\mathbb{R}\setminus\{1,2\}"),
        (r"\mathbb{R}\setminus(1,2)", r"(-\infty,1]\cup[2,\infty)"), (r"\mathbb{R}-[0,1]", r"x<0\text{ or }x>1"),
        (r"(1,2)\cup(3,4)\cup\{2\}", r"(1,2]\cup(3,4)"), (r"A\cup B", r"A\cup B"),
        (r"x<1 \text{ or } x>0", r"\mathbb{R}"), (r"\{(1,2)\}\cup\{(3,4)\}", r"\{(3,4),(1,2)\}"),
        (r"(-\infty,0)\cup(0,\infty)", r"\mathbb{R}\setminus\{0\}"), (r"[0,1)\cup(1,2]", r"[0,2]\setminus\{1\}"),
        (r"[0,10]\setminus(3,5)", r"[0,3]\cup[5,10]"), (r"[-1,1]\cap[0,2]", "[0,1]"), (r"(0,1]\cup[1,2)", "(0,2)"),
        (r"(0,1)\cup\{1\}\cup(1,2)", "(0,2)"), (r"\{2,4,6\}\setminus\{4\}", r"\{2,6\}"),
        (r"\{a,b\}\cup\{c\}", r"\{a,b,c\}"), (r"\{a,b\}\cap\{b,c\}", r"\{b\}"),
        (r"\mathbb{R}\setminus\{\frac12\}", r"x\neq 0.5"),
        (r"(-\infty,-1)\cup(-1,1)\cup(1,\infty)", r"\mathbb{R} - \{-1,1\}"),
        (r"x\in\mathbb{R}, x\neq 2", r"(-\infty,2)\cup(2,\infty)"), (r"(-\infty, 3) \cap (1, \infty)", "1<x<3"),
        (r"\emptyset\cup\{1\}", r"\{1\}"), (r"\{1,2\}\cap\{3\}", r"\emptyset"),
    ],
    "working": [
        ("m+n = 118+29 = 147", "147"), ("a+b+c = 14+27+31 = 72", "72"), ("100m+n = 100(3)+5 = 305", "305"),
        ("x^2+y^2 = 9+16 = 25", "25"), (r"\frac{m}{n} = \frac{2}{4} = \frac12", "0.5"), ("118+29=147", "147"),
        ("18+24 = 42 apples", "42"), (r"x = \frac{1}{3} \approx 0.33", r"\frac13"), ("p+q = 3+7 = 10", "p+q=10"),
        ("2a+b = 2(3)+1 = 7", "7"), (r"AB+BC = 3\text{ cm}+4\text{ cm} = 7\text{ cm}", "7 cm"),
        ("f(2)+f(3) = 4+9 = 13", "13"), (r"ab = 3 \cdot 4 = 12", "12"),
        ("a^2+b^2 = 9+16 = 25", "25"), ("x+y+z = 1+2+3 = 6", "x+y+z=6"), (r"P = \frac{3}{10} = 0.3", "0.3"),
        (r"area = 3 \cdot 4 = 12", "12"), ("3(4)+5 = 12+5 = 17", "17"),
    ],
    "compound": [
        ("1 hour 30 minutes", "90 minutes"), ("1 hour 30 minutes", "1.5 hours"),
        ("1 hour and 30 minutes", "90 minutes"), (r"1\text{ hour }30\text{ minutes}", "90 minutes"),
        (r"1\text{ hour and }30\text{ minutes}", "90 minutes"), ("1 hr 30 min", "90 min"), ("1h 30min", "90 min"),
        ("1 h 30 m", "90 minutes"), ("2 hours 15 minutes 30 seconds", "8130 seconds"),
        ("5 feet 3 inches", "63 inches"), ("5 ft 3 in", "5.25 feet"), ("12元5角", "12.5元"), ("12元5角", "12.5"),
        ("3元5角2分", "3.52元"), ("5千克300克", "5.3千克"), ("5千克300克", "5300克"), ("2小时30分钟", "150分钟"),
        ("2小时30分", "2.5小时"), ("3米20厘米", "320厘米"), ("3米20厘米", "3.2米"), ("1分30秒", "90秒"),
        ("2 m 5 cm", "205 cm"), ("1 km 200 m", "1200 m"), ("5 dollars 25 cents", r"\$5.25"),
        ("5 dollars and 25 cents", r"\$5.25"), ("1年6个月", "18个月"), ("2 years 3 months", "27 months"),
        ("3 lb 4 oz", "52 oz"), ("1 day 2 hours", "26 hours"), ("2 weeks 3 days", "17 days"),
        ("90 minutes", "1 hour 30 minutes"), ("1 hour 30 minutes", "1 hour 30 minutes"), ("5吨200千克", "5200千克"),
        ("1时20分", "80分钟"), ("3角5分", "0.35元"), ("5 m, 20 cm", "20 cm, 5 m"), ("3米零5厘米", "305厘米"),
        ("2 hours 45 minutes", "165 minutes"), ("6 feet 2 inches", "74 inches"), ("1 m 50 cm", "1.5 m"),
        ("3 km 50 m", "3.05 km"), ("8元5角", "8.5元"), ("8元5角", "85角"), ("1吨50千克", "1.05吨"),
        ("4小时15分", "4.25小时"), ("2分钟", "120秒"), ("3米5分米", "3.5米"), ("1 week 3 days", "10 days"),
        ("3 pounds 8 ounces", "3.5 pounds"), ("1 minute 15 seconds", "75 s"),
    ],
    "qualifiers": [
        (r"f(n)=n+1 \text{ for all integers } n", "n+1"), (r"f(x)=cx \text{ for any real } c", "f(x)=cx"),
        (r"f(x)=cx \text{ for some constant } c", "f(x)=cx"), (r"f(x)=x \text{ for all real numbers } x", "x"),
        ("f(x)=x for all real numbers x", "f(x)=x"), (r"f(x)=cx, \text{ where } c \text{ is a constant}", "f(x)=cx"),
        (r"f(x)=cx, c\in\mathbb{R}", "f(x)=cx"), (r"f(x)=kx, k\in\mathbb{R}", r"f(x)=cx, c\in\mathbb{R}"),
        (r"\text{all positive integers } n=3k", "3k"), ("all integers n = 2k+1", "2k+1"),
        (r"\text{all integers of the form } 3k", "3k"),
        (r"n+1 \text{ for every integer } n", r"n+1 \text{ for all integers } n"), (r"x>3, x\in\mathbb{R}", "x>3"),
        (r"f(x)=0 \text{ for all } x", "0"), ("2n+1, n为整数", "2n+1"),
        (r"f(x)=2x \text{ for all } x\in\mathbb{R}", "2x"),
        (r"f(x) = x^2 \text{ for every real number } x", "f(x)=x^2"),
        (r"a_n = 3n \text{ for all positive integers } n", "3n"), (r"f(x)=ax+b \text{ for any real } a, b", "ax+b"),
        ("x=2n, n any integer", r"x=2k, k\in\mathbb{Z}"), ("y = Ce^x, C constant", "y=Ce^x"),
        (r"y=Ce^{x}, \text{ where } C \text{ is an arbitrary constant}", "Ce^x"),
    ],
    "families": [
        (r"x=2k\pi, k\in\mathbb{Z}", r"x=2n\pi, n\in\mathbb{Z}"),
        (r"\frac{\pi}{6}+k\pi, k\in\mathbb{Z}", r"\frac{\pi}{6}+n\pi, n\in\mathbb{Z}"),
        (r"\frac{\pi}{6}+k\pi, k\in\mathbb{Z}", r"\frac{7\pi}{6}+n\pi, n\in\mathbb{Z}"),
        (r"k\pi-\frac{\pi}{4}\ (k\in Z)", r"\frac{3\pi}{4}+n\pi, n\in\mathbb{Z}"),
        (r"x=k\pi\text{ where } k \text{ is an integer}", r"x=n\pi, n\in\mathbb{Z}"),
        (r"x=k\pi\text{ for any integer } k", r"k\pi"),
        (r"x=2k\pi \text{ or } x=\pi+2k\pi, k\in\mathbb{Z}", r"x=n\pi, n\in\mathbb{Z}"),
        (r"3n+1, n\in\mathbb{Z}", r"3k-2, k\in\mathbb{Z}"), (r"3n+1, n\in\mathbb{N}", r"3m+1, m\in\mathbb{N}"),
        (r"-2k\pi, k\in\mathbb{Z}", r"2k\pi, k\in\mathbb{Z}"),
        (r"x=\pm\frac{\pi}{3}+2k\pi, k\in\mathbb{Z}", r"x=\frac{\pi}{3}+2n\pi\text{ or }x=-\frac{\pi}{3}+2n\pi, n\in\mathbb{Z}"),  # noqa: E501
        ("x=kπ (k∈Z)", r"x=n\pi, n\in\mathbb{Z}"), ("x=kπ，k为整数", r"x=n\pi, n\in\mathbb{Z}"),
        (r"2^k, k\in\mathbb{N}", r"2^n, n\in\mathbb{N}"),
        (r"30^\circ+360^\circ k, k\in\mathbb{Z}", r"390^\circ+360^\circ n, n\in\mathbb{Z}"),
        (r"x = \frac{\pi}{4}+\frac{k\pi}{2}, k\in\mathbb{Z}", r"x=\frac{\pi}{4}+\frac{n\pi}{2}, n\in\mathbb{Z}"),
        (r"\theta=k\cdot 180^\circ, k\in\mathbb{Z}", r"\theta=n\cdot180^\circ, n\in\mathbb{Z}"),
        (r"x=k\pi \text{ or } x=\frac{\pi}{2}+k\pi, k\in\mathbb{Z}", r"x=\frac{n\pi}{2}, n\in\mathbb{Z}"),
        (r"6m+5, m\in\mathbb{Z}", r"6k-1, k\in\mathbb{Z}"),
    ],
    "points": [
        ("A(1,2)", "(1,2)"), ("A(1,2)", "A=(1,2)"), (r"\overrightarrow{AB}=(1,2)", "(1,2)"),
        (r"\vec{a}=(1,2)", "(1,2)"), ("P(3,-1,2)", "(3,-1,2)"), (r"\text{point }A(1,2)", "(1,2)"),
        ("点A(1,2)", "(1,2)"), (r"|\overrightarrow{AB}|=5", "5"), ("A(1,2), B(3,4)", "(1,2), (3,4)"),
        (r"P\left(\frac12,3\right)", "(0.5,3)"), (r"\overrightarrow{AB}=\langle 1,2\rangle", "(1,2)"),
        ("A'(1,2)", "(1,2)"), ("A_1(1,2)", "(1,2)"),
        ("B(-2,5)", "(-2,5)"), (r"\overrightarrow{PQ}=(3,-4)", "(3,-4)"), (r"\vec{v}=(1,2,3)", "(1,2,3)"),
        (r"\vec{v}=\langle1,2,3\rangle", "(1,2,3)"), ("M(0,0)", "(0,0)"), ("点P(2,3)", "(2,3)"),
        ("O(0,0), A(1,1)", "(0,0),(1,1)"),
    ],
    "programs": [
        ("exp(9) - 4", "e^9-4"), ("exp(-x)", "e^{-x}"), ("exp(2*x)", "e^{2x}"), ("log(x)", r"\log x"),
        ("ln(x)+1", r"1+\ln x"), ("sqrt(2)/2", r"\frac{1}{\sqrt2}"), ("sqrt(1+sqrt(2))", r"\sqrt{1+\sqrt2}"),
        ("O(n log n)", r"O(n \log n)"), ("[[1,2],[3,4]]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        ("[[1],[2]]", r"\begin{pmatrix}1\\2\end{pmatrix}"), ("[[1,2]]", r"\begin{pmatrix}1&2\end{pmatrix}"),
        ("Matrix([[1,0],[0,1]])", r"\begin{bmatrix}1&0\\0&1\end{bmatrix}"), ("x**2+1", "x^2+1"), ("2**10", "1024"),
        ("x**(n+1)", "x^{n+1}"), ("2**-3", "1/8"), ("x**12", "x^{12}"), ("sin(pi/6)", "1/2"),
        ("cos(x)**2", r"\cos^2 x"), ("abs(-3)", "3"), ("floor(2.5)", "2"), ("ceil(2.5)", "3"), ("factorial(5)", "120"),
        ("binom(5,2)", "10"), ("max(3,5)", "5"), ("gcd(12,18)", "6"), ("asin(1)", r"\frac{\pi}{2}"),
        ("atan(1)", r"\pi/4"), ("3*x*y", "3xy"), ("log2(8)", "3"), ("log10(1000)", "3"), ("1/2*pi", r"\pi/2"),
        ("cbrt(8)", "2"), ("{1, 2, 3}", r"\{1,2,3\}"), ("Rational(1,3)", r"\frac13"), ("pow(2,5)", "32"),
        ("5!", "factorial(5)"), ("sqrt(3)*i", r"i\sqrt3"),
        ("exp(x)/x", r"\frac{e^x}{x}"), ("sqrt(x**2+1)", r"\sqrt{x^2+1}"), ("log(x**2)", r"\log(x^2)"),
        ("x**3 - 2*x + 1", "x^3-2x+1"), ("[[0,-1],[1,0]]", r"\begin{bmatrix}0&-1\\1&0\end{bmatrix}"),
        ("[[1,2,3],[4,5,6]]", r"\begin{pmatrix}1&2&3\\4&5&6\end{pmatrix}"), ("O(log n)", r"O(\log n)"),
        ("O(n**2)", "O(n^2)"), ("sin(x)**2 + cos(x)**2", "1"), ("3**0.5", r"\sqrt3"), ("2*pi/3", r"\frac{2\pi}{3}"),
        ("tan(pi/4)", "1"), ("exp(1)", "e"), ("ln(e)", "1"), ("(1/2)**3", "1/8"), ("1/(2*x)", r"\frac{1}{2x}"),
    ],
    "percent signs and introductions": [
        ("35 pct", r"35\%"), ("12.5 per cent", r"12.5\%"), (r"12\text{ per cent}", r"12\%"),
        (r"35\text{ pct}", "0.35"), ("5 pct.", r"5\%"), ("5‰", "0.005"), ("2⁄3", r"\frac23"), ("1 2⁄3", r"\frac53"),
        ("2∕3", r"\frac23"), ("²⁄₃", r"\frac23"), ("答：36人", "36"), ("答案：36", "36"), ("答案是36", "36"),
        ("答案为36人", "36"), ("答:一共36人", "36"), ("Answer: 36", "36"), ("The answer is 36.", "36"),
        ("the final answer is $36$", "36"), (r"\text{Answer: }36", "36"), ("**Answer:** 36", "36"), ("Answer: A", "A"),
        ("ans = 5", "5"), ("解：x=5", "5"),
        ("答:5", "5"), ("答案：B", "B"), ("7⁄8", "0.875"), ("50 pct", "0.5"), ("0.5 per cent", r"0.5\%"),
        ("Answer: x=5", "5"), ("The final answer is 7/2.", "3.5"),
    ],
    "counting": [
        (r"2\binom{n}{2}", "n(n-1)"), (r"\frac{n!}{(n-2)!}", "n(n-1)"), (r"\frac{n!}{(n-2)!}", "n^2-n"),
        (r"\binom{n}{k}", r"\binom{n}{n-k}"), (r"\binom{n}{k}", r"\frac{n!}{k!(n-k)!}"), (r"\frac{(n+1)!}{n!}", "n+1"),
        ("n!", "n(n-1)!"), (r"\binom{n+1}{2}", r"\frac{n(n+1)}{2}"), (r"\binom{n}{2}+n", r"\binom{n+1}{2}"),
        (r"\binom{2n}{n}", r"\frac{(2n)!}{(n!)^2}"), (r"2\binom{n}{2}+n", "n^2"), (r"n\cdot n!", "(n+1)!-n!"),
        (r"\frac{n!}{(n-3)!}", "n(n-1)(n-2)"), (r"k\binom{n}{k}", r"n\binom{n-1}{k-1}"), ("n(n-1)", r"2\binom{n}{2}"),
        (r"\frac{(n+2)!}{n!}", "(n+1)(n+2)"), (r"\binom{n}{3}", r"\frac{n(n-1)(n-2)}{6}"), (r"\binom{n}{n-1}", "n"),
        (r"\binom{n}{2}+\binom{n}{1}", r"\binom{n+1}{2}"), (r"\frac{n!}{n}", "(n-1)!"), (r"n!\cdot(n+1)", "(n+1)!"),
        ("n!^2", "(n!)^2"), (r"\binom{m+n}{m}", r"\frac{(m+n)!}{m!n!}"), (r"\binom{m+n}{m}", r"\binom{m+n}{n}"),
    ],
    "more": [
        ("two and a half million", "2500000"), ("one and a half dozen", "18"), ("thirty-six square units", "36"),
        ("three fourths of a mile", "0.75"), ("one hour thirty minutes", "90 minutes"),
        ("two hours and fifteen minutes", "135 minutes"), ("两小时三十分钟", "150分钟"), ("三元五角", "3.5元"),
        ("两小时三十分", "2.5小时"), ("2又1/2", "2.5"), ("2又3分之1", r"\frac73"), ("一万零五十", "10050"),
        ("十万", "100000"), ("百万", "1000000"), ("千万", "10000000"), ("1.2万亿", "1200000000000"),
        ("二斤半", "2.5斤"), ("1小时零5分", "65分钟"), ("3元零5分", "3.05元"), ("3千米500米", "3.5千米"),
        ("2天3小时", "51小时"), ("3斤5两", "3.5斤"), ("all real numbers except 3", r"\mathbb{R}\setminus\{3\}"),
        (r"\text{all real numbers except }3", r"x\ne3"), ("all reals except 0 and 1", r"\mathbb{R}\setminus\{0,1\}"),
        (r"(-\infty,2)U(3,\infty)", "x<2 or x>3"), ("(-inf,2) union (3,oo)", r"(-\infty,2)\cup(3,\infty)"),
        ("a_n=2n-1 (n∈N^*)", "2n-1"), (r"a_n=2n-1,n\in\mathbb{N}^*", "a_n=2n-1"),
        (r"\{k\pi \mid k\in\mathbb{Z}\}", r"x=n\pi, n\in\mathbb{Z}"),
        (r"\{x\mid x=k\pi, k\in\mathbb{Z}\}", r"x=n\pi, n\in\mathbb{Z}"), ("log(8,2)", "3"), ("np.sqrt(2)", r"\sqrt2"),
        ("math.pi/2", r"\frac{\pi}{2}"), ("np.array([[1,2],[3,4]])", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        ("故答案为：36", "36"), ("所以答案是36", "36"), ("故选：B", "B"), ("答：需要36天", "36"),
        ("答：还剩36个", "36"), ("Final answer: 36", "36"), ("Therefore, the answer is 36.", "36"),
        ("x^{1/3}", r"\sqrt[3]{x}"), ("x^{-1}", r"\frac1x"), (r"\frac{x^2-1}{x-1}", "x+1"), ("e^{2x}", "(e^x)^2"),
        (r"\frac{1}{2}x", "0.5x"), ("1/2x", "x/2"), ("(x+y)^2", "x^2+2xy+y^2"), ("2^{n+1}", r"2\cdot2^n"),
        ("4^n", "2^{2n}"), (r"\approx 8.24\text{ mph}", r"\approx 8.24"), ("8.24", r"\approx 8.24\text{ mph}"),
        ("about 5", "about 5"), ("about 5", r"\approx 5"), ("5 cups", "5"), ("3/4 cups", "0.75"), ("5 pints", "5"),
        ("twelve apples", "12"), ("twelve apples", "12 apples"), (r"\text{two lines}", "2"), ("half", "0.5"),
        ("half a mile", "0.5"), ("half an hour", "30 minutes"), ("two-thirds", "2/3"), ("one-half", "1/2"),
        ("0.5", "one half"), ("48", "four dozen"), ("seven hundredths", "0.07"), (r"\text{six}", "6"),
        ("eleven", "11"), ("SEVEN", "7"), ("x = 5 units", "5"), (r"24\text{ cm}^2", "24"), ("12apples", "12"),
        ("5 hours", "5"), ("1<x<2", "(1,2)"), ("1≤x≤2", "[1,2]"), ("x=0", r"\{0\}"), (r"\binom{5}{2}", "10"),
        ("C(5,2)", "(5,2)"), ("x+y=3=3", "3"), (r"\frac{n(n+1)}{2}", r"\frac{n^2+n}{2}"), ("5 dollars", "500 cents"),
        ("3√2", r"3\sqrt2"), ("√(1+√2)", r"\sqrt{1+\sqrt{2}}"), ("√2/2", "1/√2"),
        ("negative infinity", r"-\infty"), ("2.5 x 10^9", "2.5 billion"), ("1e6", "one million"),
        ("1,000,000", "1 million"), ("0.5 million", "500,000"), ("-2.5 million", "-2500000"), ("36个", "36"),
        ("36个人", "36"), ("36元", "36"), ("5米", "500厘米"), ("5平方米", "5"), ("80千米/时", "80"),
        ("60公里每小时", "60"), ("5 multiples", "5"),
        (r"\pi a^2", r"a^2\pi"), (r"\frac12 at^2", "0.5at^2"), ("2 at", "2at"), (r"2\pi ab", r"2ab\pi"),
        (r"\frac{1}{2} abcd", "0.5abcd"), (r"\frac12 bh", r"\frac{bh}{2}"), (r"\pi r^2 h", r"\pi r^2h"),
        (r"\frac{1}{3}\pi r^2 h", r"\frac{\pi r^2 h}{3}"), (r"\frac12 mv^2", "0.5mv^2"), ("4 x y z", "4xyz"),
        (r"\pi x+\pi", r"\pi(x+1)"), (r"\frac{x}{\pi}", r"x\pi^{-1}"), (r"\sqrt[3]{x-5}", "(x-5)^{1/3}"),
        ("7 choose 2", "21"), ("5 factorial", "120"), ("square root of 2", r"\sqrt2"), ("|x-1|", "|1-x|"),
        ("200 grams of protein", "0.2 kg"), (r"\operatorname{arcsin}(1)", r"\frac{\pi}{2}"),
    ],
    "from bug reports": [
        (r"17, 23, \text{ and } 91", "91, 17 and 23"), (r"\pm 144", "-144, 144"),
        (r"2 \pm \sqrt{7}", r"2+\sqrt7, 2-\sqrt7"), (r"y=-\frac{3}{2}x+4", "3x+2y-8=0"), ("2y = 8 - 3x", "y=-1.5x+4"),
        ("exp(9) - 4", "e^{9}-4"), ("3*pi/4", r"\dfrac{3\pi}{4}"), ("-5*pi", r"-5\pi"), ("O(n log n)", r"O(n \log n)"),
        ("2^(1/3)", r"\sqrt[3]{2}"), ("7*x**3 - 2*x", "7x^3-2x"), ("35 pct", r"35\%"), ("35 percent", r"35\%"),
        ("12.5 per cent", r"12.5\%"), ("(2,3.25)", r"(2,\frac{13}{4})"), (r"\csc^2(t)", r"\cot^2(t)+1"),
        (r"\begin{pmatrix}-\frac{5}{3}&-1\\2&\frac{1}{6}\end{pmatrix}", r"(\begin{pmatrix}-\frac{5}{3}&-1\\2&\frac{1}{6}\\\end{pmatrix})"),  # noqa: E501
        ("-12x-5y+7z-30=0", "12x+5y-7z+30=0"), (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"),
        ("2 1/4", r"\frac{9}{4}"), (r"3\frac{2}{5}", "3.4"), ("-1 1/2", r"-\frac32"),
        (r"-2\frac{1}{3}", r"-\frac{7}{3}"), (r"\text{26}", "26"), ("26", r"\mbox{26}"), ("x<9", r"(-\infty, 9)"),
        (r"(-\infty, 9)", "x<9"), (r"[\sqrt{5}, \infty)", r"t\ge\sqrt5"), (r"\frac{y}{7}", "y/7"),
        (r"4\pi r^2", "4*pi*r^2"), (r"\sqrt{y}", "sqrt(y)"), (r"\text{yes}", "yes"), ("No.", r"\text{no}"),
        (r"\frac{n^2+3n}{2}", r"\frac{n(n+3)}{2}"), (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
        (r"f(n)=n+1 \text{ for all integers } n", "n+1"), (r"f(x)=cx \text{ for any real } c", "f(x)=cx"),
        (r"60^\circ", "60"), (r"\{2,3,5\}", "2, 3, 5"), ("b(a+c)", "ab+bc"), ("(a,b)=(1,2),(2,1)", "(2,1),(1,2)"),
        (r"\text{all positive integers } n=3k", "3k"), ("(3,7)", "(3,7)"),
        (r"\begin{pmatrix}3\\8\end{pmatrix}", r"\begin{pmatrix} 3 \\ 8 \end{pmatrix}"), ("7, 3, 5", "3,5,7"),
        ("-2,9", "9,-2"), ("413_6", "413_{6}"), ("033", "33"), ("042", "42"), ("0", "000"),
        ("a+b+c = 14+27+31 = 72", "72"), (r"3 \cdot 8 + 2 \cdot 9 = 42", "42"),
        (r"\begin{bmatrix}-3\\-11\\-8\end{bmatrix}", r"\begin{pmatrix} -3 \\ -11 \\ -8 \end{pmatrix}"),
        (r"\left[\begin{array}{cc}1&2\\3&4\end{array}\right]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        ("[[1,2],[3,4]]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"), ("7{,}200{,}015", "7200015"),
        (r"(0,25)\setminus\{4\}", r"(0,4)\cup(4,25)"),
        (r"[5,\infty)\cup(-\infty,-2]", r"(-\infty,-2] \cup [5,\infty)"), ("$85,000.", "85000"),
        ("85,000 dollars", "85000"), (r"\frac{0.25x}{y}/0.25", r"\frac{x}{y}"), (r"2\frac{x}{3}", r"\frac{2x}{3}"),
        (r"\frac{1.5}{3}", "0.5"), ("Amelia", r"\text{Amelia}"), ("2.430", "2.43"), (r"e^2 \leq xy", r"xy \geq e^2"),
        (r"n = 7 \text{ or } n = 8", "7, 8"), (r"x\neq -7", r"(-\infty,-7)\cup(-7,\infty)"),
        (r"\mathbb{R} - \{-7\}", r"(-\infty,-7)\cup(-7,\infty)"), ("12千克", "12"), ("3.5吨", "3500千克"),
        ("2小时30分钟", "150分钟"), ("12元5角", "12.5元"), ("答：36人", "36"), ("答案：36", "36"),
        ("百分之七十五", "75%"), ("七千二百四十五亿三千零一十万六千", "724530106000"), ("一千零三点五", "1003.5"),
        ("−7", "-7"), ("–7", "-7"), ("2⁄3", r"\frac23"), ("3 × 10⁻⁴", "0.0003"), ("√2/2", r"\frac{\sqrt{2}}{2}"),
        ("5 ÷ 8", "0.625"), (r"2.4 \mathrm{~cm}", "2.4"), (r"3.2\times 10^{-4} \mathrm{~m}", r"0.32\text{ mm}"),
        ("1.6e-3", r"1.6 \times 10^{-3}"), (r"\text{C}", "C"), (r"\textbf{(C)}", "C"), ("4 dozen", "48"),
        ("7 tenths", "0.7"), ("six thousand", "6000"), ("12.5 million", "12500000"), ("30 thousand", "30000"),
        ("3 halves", r"\frac32"), ("1 hour 30 minutes", "90 minutes"), ("5千克300克", "5.3千克"),
        ("一亿三千万", "130000000"), ("3.5万", "35000"), (r"[1,2]\cup[2,3]", "[1,3]"),
        (r"\{1,2\}\cup\{3\}", r"\{1,2,3\}"), (r"(-\infty,1)\cup\{1\}", r"(-\infty,1]"),
        (r"x=2k\pi, k\in\mathbb{Z}", r"x=2n\pi, n\in\mathbb{Z}"),
        (r"\frac{\pi}{6}+k\pi, k\in\mathbb{Z}", r"\frac{\pi}{6}+n\pi, n\in\mathbb{Z}"), ("A(1,2)", "(1,2)"),
        (r"\overrightarrow{AB}=(1,2)", "(1,2)"), (r"2\binom{n}{2}", "n(n-1)"),
    ],
}
WRONG = {
    "scales": [
        ("2.5 billion", "2.5"), ("2.5 billion", "2.5 million"), ("3 trillion", "3"), ("12.5 million", "12.5"),
        ("7 hundred", "7"), ("4 dozen", "4"), ("4 dozen eggs", "4"), (r"2.5\text{ million}", "2.5"),
        (r"\$2.5\text{ billion}", r"\$2.5"), ("5 million dollars", "5"), ("two million", "2"),
        ("30 thousand", "30 million"), ("1.5bn", "1.5"), ("x=2 million", "2"),
        ("1.5 times", "1.5"), ("5 times more", "5"), ("2 to 3", "2"), ("10 percent", "10"),
        (r"\$1.2\text{ trillion}", "1.2"), ("1.2 million", "1.2 billion"), ("15 hundredths", "15"), ("8 thirds", "8"),
        ("four and a quarter", "4"), ("negative seven", "7"), ("-(3 dozen)", "36"), ("3 cubed", "9"),
    ],
    "parts": [
        ("3 quarters", "3"), ("5 eighths", "5"), ("9 hundredths", "9"), ("2 thirds", "0.67"),
        (r"3\text{ fourths}", "3"), ("7 tenths", "7 hundredths"), ("one half", "1"), ("two thirds", "2"),
        ("one-third", "3"), ("three fifths", "3"),
    ],
    "spelled": [
        ("six thousand", "6"), ("minus 2", "2"), ("negative five", "5"), ("three and one half", "3"),
        ("forty-two", "24"), ("five apples", "6"), ("twelve", "20"), ("3 and a half", "3"), ("minus 2 apples", "2"),
        ("negative", "-1"),
    ],
    "powers": [
        ("5 squared", "5"), ("2 cubed", "2"), ("x squared", "x"), ("5 cm squared", "5 cm"), (r"5\text{ squared}", "5"),
        ("5 times", "5"), ("7 minus 2", "7"), ("3 plus 4", "3"),
    ],
    "not units": [
        (r"5 \text{ is wrong}", "5"), ("5 is wrong", "5"), (r"3 \text{ or fewer}", "3"), ("3 or more", "3"),
        (r"3\text{ or more}", "3"), (r"3\text{ at most}", "3"), ("at least 3", "3"), (r"\text{at least }3", "3"),
        ("more than 3", "3"), ("fewer than 3", "3"), ("no more than 3", "3"), ("about 5", "5"),
        (r"\text{about }5", "5"), ("approximately 5", "5"), (r"5\text{ approximately}", "5"), (r"\approx 5", "5"),
        ("≈ 5", "5"), (r"\approx 3.14", "3.14"), ("5 roughly", "5"), ("not 5", "5"), (r"\text{not }5", "5"),
        (r"5\text{ is not correct}", "5"), ("5 is not the answer", "5"), (r"5\text{ factorial}", "5"),
        ("5 factorial", "5"), (r"5\text{ more}", "5"), ("5 less", "5"), ("5 fewer apples", "5"),
        ("5 more apples", "5"), ("5 fold", "5"), (r"5\text{ does not work}", "5"), (r"5\text{ fails}", "5"),
        ("5 wrong", "5"), (r"5\text{ incorrect}", "5"), (r"1 \text{ is impossible}", "1"), (r"1\text{ wrong}", "1"),
        (r"5\text{ or }6", "5"), ("5 to 7", "5"), ("between 5 and 7", "5"), ("5 and above", "5"), ("5 and up", "5"),
        ("up to 5", "5"), ("5 at least", "5"), (r"5\text{ maximum}", "5"), ("5 max", "5"),
        (r"5\text{ each or more}", "5"), ("over 5", "5"), ("under 5", "5"), ("almost 5", "5"), ("nearly 5", "5"),
        ("5 almost", "5"), ("101 binary", "101"), ("5 if n is even", "5"), (r"5 \text{ if } n \text{ is even}", "5"),
        ("5 unless n=0", "5"), ("5 or so", "5"), ("5 plus or minus 1", "5"), ("only 5", "6"), ("twice 5", "5"),
        ("half of 5", "5"), ("5 mod 7", "5"), ("5 percent", "5"), ("5 over 7", "5"), ("5 and a third", "5"),
        ("3 times as many", "3"), ("maybe 5", "5"), ("5 maybe", "5"), ("5 possibly", "5"), ("5 plus", "5"),
        ("5 isn't right", "5"), ("x=5 is wrong", "5"), ("x+y=5 is wrong", "x+y=5"),
        (r"x+y=5\text{ is wrong}", "x+y=5"), (r"(1,2)\text{ is wrong}", "(1,2)"), ("5 does not exist", "5"),
        ("5 doesn't", "5"), (r"5\text{ ago}", "5"), ("5 below", "5"), ("5 below zero", "5"), ("greater than 5", "5"),
        ("5.0 exactly 6", "5"),
        (r"7\text{ or less}", "7"), (r"7 \text{ or greater}", "7"), ("no fewer than 7", "7"), ("at most 7", "7"),
        ("not more than 7", "7"), ("less than 7", "7"), ("7 is correct", "7"), ("7 should be right", "7"),
        (r"7\text{ was wrong}", "7"), (r"7\text{ if } x>0", "7"), ("7 minimum", "7"), ("7 maximum", "7"),
        ("around 7", "7"), ("close to 7", "7"), ("just under 7", "7"), ("7, approximately", "7"), ("7 (rounded)", "7"),
        (r"\sim 7", "7"), (r"\gtrsim 7", "7"), ("7 cannot be", "7"), ("7 never", "7"), ("7 may be", "7"),
        ("none of 7", "7"), ("7th", "7"), ("7 doubled", "7"), ("7 halved", "7"), ("7 per cent", "7"),
        ("7 negative", "7"), ("7 prime", "7"),
    ],
    "nouns": [
        ("12 apples", "13"), ("12 apples", "21"), ("36 square units", "35"), ("5个苹果", "6"),
        ("2 feet tall", "2 inches tall"), ("12 cm", "12 m"),
        ("15 minutes", "15 hours"), ("8棵树", "80"),
    ],
    "chinese words": [
        ("5左右", "5"), ("5以上", "5"), ("约5", "5"), ("大约5人", "5"), ("不到5", "5"), ("5不对", "5"),
        ("至少5个", "5"), ("5个以上", "5"), ("10多人", "10"), ("5成", "5"), ("三角形", "3"), ("一样", "1"),
        ("一定", "一样"), ("超过5", "5"), ("3.5万人", "3.5"), ("5或6", "5"), ("5人不够", "5"), ("三次函数", "3"),
    ],
    "chinese numbers": [
        ("一亿三千万", "1000030000000"), ("3.5万", "3.5"), ("两万", "2"), ("一百零二", "120"), ("半小时", "1小时"),
        ("3个半", "3"), ("百分之二十", "20"), ("五分之三", r"\frac53"), ("二又三分之一", r"\frac23"),
        ("三分之二", "2"), ("二十", "12"), ("一千零一十", "1001"), ("5千", "5"), ("5万元", "5元"), ("五亿", "50000"),
        ("负五", "5"),
        ("三百二十一", "312"), ("10万", "10"), ("四分之一", "4"), ("一万二", "10002"),
    ],
    "small numbers": [
        (r"\frac{1}{1800!}", r"\frac{1}{1801!}"), ("e^{-1000}", "e^{-1001}"), (r"1-\frac{1}{2024!}", "1"),
        (r"\frac{\sqrt2}{10^{50}}", r"\frac{1.41421356}{10^{50}}"), ("10^{-60}", "0"), (r"\pi\cdot 10^{-60}", "0"),
        (r"\sqrt2+\sqrt3-\sqrt{5+2\sqrt6}", "10^{-60}"), (r"\sqrt2+10^{-70}", r"\sqrt2"),
        (r"\sqrt{2+10^{-90}}", r"\sqrt2"), (r"\pi+10^{-100}", r"\pi"), ("2^{-1000}", "2^{-1001}"), ("e^{-100}", "0"),
        (r"\cos\frac{\pi}{7}-\cos\frac{2\pi}{7}+\cos\frac{3\pi}{7}", r"\frac12+10^{-50}"),
        (r"\frac{\pi}{10^{100}}", r"\frac{\pi}{10^{101}}"), ("3000!", "3001!"), ("2^{100000}", "2^{100001}"),
        (r"(1+\sqrt2)^{-300}", r"(\sqrt2-1)^{301}"), (r"e^{\pi\sqrt{163}}", "262537412640768744"),
        (r"\frac{1}{2000!}", "0"), (r"\frac{1}{500!}", r"\frac{1}{501!}"), ("10^{-300}", "10^{-301}"),
        ("10^{-400}", "10^{-401}"), ("2^{-5000}", "0"), ("e^{-2000}", "e^{-2000.5}"),
        (r"\sqrt3\cdot10^{-80}", r"\sqrt{3}\cdot 10^{-81}"), (r"\pi^{-200}", r"\pi^{-201}"),
        (r"(\sqrt3-\sqrt2)^{50}", r"(\sqrt3-\sqrt2)^{51}"), (r"\ln(1+10^{-60})", "0"),
        (r"\sqrt{10^{100}+1}", "10^{50}"), (r"2-\frac{1}{10^{80}}", "2"), (r"\frac{10^{100}+1}{10^{100}}", "1"),
    ],
    "sets": [
        (r"\mathbb{R}\setminus\{0,1\}", r"(-\infty,0)\cup(1,\infty)"), (r"(0,25)\setminus\{4\}", "(0,25)"),
        (r"\{1,2\}\cup\{3\}", r"\{1,2\}"), (r"\{1,2,3\}\cap\{2,3,4\}", r"\{1,2,3,4\}"), (r"[0,5]\cap(3,8)", "[3,5]"),
        (r"(1,2)\cup(2,3)", "(1,3)"), (r"[1,2]\cup[3,4]", "[1,4]"), (r"(-\infty,1)\cup\{1\}", r"(-\infty,1)"),
        (r"(1,3)\cap(2,4)", r"\emptyset"), (r"(-\infty,2)\cup(2,\infty)", r"\mathbb{R}"),
        (r"x\ne1,2", r"\mathbb{R}\setminus\{1\}"), (r"\mathbb{R}\setminus\{2\}", r"\mathbb{R}\setminus\{3\}"),
        (r"\mathbb{R}\setminus(1,2)", r"(-\infty,1)\cup(2,\infty)"), (r"A\cup B", r"A\cap B"),
        (r"x<1 \text{ and } x>0", r"\mathbb{R}"),
        (r"[0,1)\cup(1,2]", "[0,2]"), (r"[0,10]\setminus[3,5]", r"[0,3]\cup[5,10]"), (r"\{1,3\}\cup\{2\}", r"\{1,2\}"),
        (r"\{1\}\cup[2,3]", "[1,3]"), (r"\{2,4,6\}\setminus\{4\}", r"\{2,4\}"),
        (r"\mathbb{Z}\setminus\{0\}", r"\mathbb{Z}"),
    ],
    "working": [
        ("m+n = 118+29 = 147", "118"), ("m+n=118+29=147", "29"), ("a+b+c = 14+27+31 = 72", "71"),
        ("a+b+c = 14+27+31 = 72", "14"), ("x^2+y^2 = 9+16 = 25", "7"), ("m+n=147", "147"), ("3+4=7 apples", "3"),
        (r"x = \frac{1}{3} \approx 0.33", "0.34"), ("p+q = 3+7 = 10", "p+q=11"), ("m+n = 118+29 = 147", "n=147"),
        ("118+29=148", "118"),
        ("m+n = 3+4 = 7", "8"), ("3(4)+5 = 12+5 = 17", "12"),
    ],
    "compound": [
        ("1 hour 30 minutes", "30 minutes"), ("1 hour 30 minutes", "1 hour"), ("1 hour 30 minutes", "100 minutes"),
        ("5 feet 3 inches", "53 inches"), ("12元5角", "125元"), ("5千克300克", "5.03千克"), ("2小时30分钟", "2.3小时"),
        ("3米20厘米", "23米"), ("5 dollars and 25 cents", r"\$30"), ("1 hour 30 minutes", "1 hour 20 minutes"),
        ("2 minutes 5 cm", "2 minutes"),
        ("2 hours 45 minutes", "2.45 hours"), ("3 km 50 m", "3.5 km"), ("8元5角", "8.05元"),
    ],
    "qualifiers": [
        (r"f(n)=n+1 \text{ for all integers } n", "n+2"), (r"f(n)=n+1 \text{ for all even } n", "n+1"),
        (r"f(x)=cx \text{ for any real } c", "f(x)=cx^2"), (r"\text{all positive integers } n=3k", "2k"),
        (r"n+1 \text{ if } n \text{ is even}", "n+1"), (r"n+1 \text{ except for } n=0", "n+1"),
        (r"x^2 \text{ for } x>0", "x^2"),
        (r"f(n)=n+1 \text{ for all integers } n", r"f(n)=n+1 \text{ for all reals } n"),
        (r"x>3, x\in\mathbb{Z}", "x>3"), (r"f(x)=0 \text{ for all } x", "1"), (r"f(x)=x \text{ for no } x", "x"),
        (r"f(x)=x \text{ for all } x \text{ except } 0", "x"),
        (r"a_n = 3n \text{ for all positive integers } n", "3n+1"), (r"n^2 \text{ for odd } n", "n^2"),
        (r"n^2 \text{ unless } n=1", "n^2"), (r"n^2\text{ when } n>2", "n^2"), (r"n^2\text{ for some } n", "n^2"),
    ],
    "families": [
        (r"x=2k\pi, k\in\mathbb{Z}", r"x=n\pi, n\in\mathbb{Z}"),
        (r"\frac{\pi}{6}+k\pi, k\in\mathbb{Z}", r"\frac{\pi}{3}+n\pi, n\in\mathbb{Z}"),
        (r"x=2k\pi \text{ or } x=\frac{\pi}{2}+2k\pi, k\in\mathbb{Z}", r"x=n\pi, n\in\mathbb{Z}"),
        (r"x=2k\pi,k\in\mathbb{Z}", r"y=2n\pi,n\in\mathbb{Z}"), (r"x=2k\pi,k\in\mathbb{Z}", r"x=2k\pi,k\in\mathbb{N}"),
        (r"3n+1, n\in\mathbb{Z}", r"3k+2, k\in\mathbb{Z}"), (r"3n+1, n\in\mathbb{N}", r"3k-2, k\in\mathbb{N}"),
        (r"x=\pm\frac{\pi}{3}+2k\pi, k\in\mathbb{Z}", r"x=\frac{\pi}{3}+2n\pi, n\in\mathbb{Z}"),
        (r"2^k, k\in\mathbb{N}", r"3^n, n\in\mathbb{N}"), ("2k", "2n"),
        (r"x = \frac{\pi}{4}+\frac{k\pi}{2}, k\in\mathbb{Z}", r"x=\frac{\pi}{4}+n\pi, n\in\mathbb{Z}"),
    ],
    "points": [
        ("A(1,2)", "(2,1)"), ("A(1,2)", "B(1,2)"), (r"\overrightarrow{AB}=(1,2)", r"\overrightarrow{CD}=(1,2)"),
        (r"\overrightarrow{AB}=(1,2)", "(1,3)"), ("P(3,-1,2)", "(3,-1)"), ("A(1,2), B(3,4)", "(1,2), (3,5)"),
        ("f(1,2)", "(1,2)"), ("A(1,2)", "12"),
        ("B(-2,5)", "(5,-2)"), (r"\mathbf{u}=(1,0)", "(0,1)"),
    ],
    "programs": [
        ("exp(9)", "e^8"), ("exp(2*x)", "e^{x}"), ("log(x)", r"\log y"), ("sqrt(1+sqrt(2))", r"\sqrt{2+\sqrt2}"),
        ("O(n log n)", "O(n^2)"), ("O(n log n)", "O(n)"), ("[[1,2],[3,4]]", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
        ("[[1],[2]]", r"\begin{pmatrix}1&2\end{pmatrix}"), ("2**10", "20"), ("x**12", "x^{1}2"), ("abs(-3)", "-3"),
        ("ceil(2.5)", "2"), ("gcd(12,18)", "36"), ("{1, 2, 3}", r"\{1,2,4\}"), ("sqrt(x+1)", r"\sqrt{x}+1"),
        ("x**3 - 2*x + 1", "x^3-2x-1"), ("[[1,2,3],[4,5,6]]", r"\begin{pmatrix}1&4\\2&5\\3&6\end{pmatrix}"),
        ("O(n**2)", "O(n^3)"), ("sqrt(5)-1", r"\sqrt{5-1}"), ("exp(2)", "2e"), ("[1, 2]", "(1,2)"),
    ],
    "percent signs and introductions": [
        ("35 pct", "35"), ("12.5 per cent", "12.5"), ("5‰", "0.05"), ("2⁄3", r"\frac32"), ("答：36人", "35"),
        ("答案：36", "63"), ("The answer is 36.", "35"), ("The answer is not 36", "36"), ("Answer: A", "B"),
        ("答案：B", "C"), ("7⁄8", "8/7"),
    ],
    "counting": [
        (r"\frac{n!}{(n-2)!}", "n(n+1)"), (r"\binom{n}{2}", "n(n-1)"), (r"\binom{n}{k}", r"\binom{n}{k+1}"),
        (r"\binom{n}{k}", r"\frac{n!}{(n-k)!}"), (r"\frac{(n+1)!}{n!}", "n"), ("n!", "(n-1)!"), ("(2n)!", "2n!"),
        ("(2n)!", r"2 \cdot n!"), (r"\binom{2n}{n}", r"\frac{(2n)!}{n!}"), ("n!", "x!"),
        (r"\frac{n!}{2}", r"\frac{n!}{3}"), ("2^n", "n!"),
        (r"\frac{(n+2)!}{n!}", "n(n+1)"), (r"\binom{n}{3}", r"\frac{n(n-1)(n-2)}{3}"), (r"\binom{n}{1}", "n+1"),
        (r"\frac{n!}{n}", "n!"), (r"\binom{m+n}{m}", r"\frac{(m+n)!}{m!}"),
    ],
    "more": [
        ("5+", "5"), ("5-", "5"), ("5...", "5"), ("5 (approx)", "5"), ("5 (approximately)", "5"), ("5 (not 6)", "5"),
        (r"5 \pmod 7", "5"), (r"5\text{ (mod 7)}", "5"), ("5 (mod 7)", "5"), ("≥5", "5"), (">5", "5"), ("5-ish", "5"),
        ("5K", "5"), ("$2.5M", "2.5"), ("1 in 5", "1"), ("1 out of 5", "1"), ("3 to 1", "3"), ("5k", "5"),
        ("5 tens", "5"), ("三元五角", "35元"), ("all real numbers except 3", r"\mathbb{R}"),
        (r"(-\infty,2) U (3,\infty)", r"(-\infty,2)\cup[3,\infty)"), ("a_n=2n-1 (n∈N^*)", "2n+1"),
        (r"\{x\mid x=k\pi, k\in\mathbb{Z}\}", r"x=2n\pi, n\in\mathbb{Z}"), ("log(8,2)", "2"), ("故选B", "C"),
        ("答：不是36", "36"), ("10^{-50}x", r"2\cdot10^{-50}x"), (r"\frac{x}{1800!}", r"\frac{x}{1802!}"),
        ("x+10^{-40}", "x"), ("1.0000001x", "x"), (r"(10^{-50}\sqrt2,1)", r"(10^{-50}\sqrt3,1)"),
        ("x^2+10^{-30}", "x^2"), ("2x+2", "2(x+1)"), (r"\sqrt{x^2}", "x"), ("e^{2x}", "e^{x^2}"),
        ("x^2+2xy+y^2", "x^2+xy+y^2"), ("4^n", "2^{n^2}"), ("8.25", r"\approx 8.24\text{ mph}"),
        ("5 cm by 3 cm", "5 cm"), ("5 by 3", "5"), ("5 x 3", "5"), ("two lines", "two points"), ("half", "2"),
        ("quarter", "4"), ("5", "not 5"), (r"\text{six}", "7"), ("six million", "6"), (r"x=5 \text{ or more}", "5"),
        (r"x = \text{about }5", "5"), ("12 + apples", "12"), ("2abc", "2"), ("2 abc", "2"), ("2xy", "2"),
        ("3 ab", "3"), ("5, maybe", "5"), ("5 or thereabouts", "5"), ("[1,2)", "[1,2]"), ("(1,2)", r"\{1,2\}"),
        ("0,1", "[0,1]"), ("P(3,-1)", "Q(3,-1)"), ("a+b=3", "3"), ("2x=10", "10"), ("x^2=5", "5"),
        (r"\frac{n(n+1)(2n+1)}{6}", r"\frac{n(n+1)(2n+1)}{3}"), (r"5\text{ dollars}", r"5\text{ euros}"),
        ("300 km", "300 miles"), ("-2.5 million", "2500000"), ("36本", "63"), ("36元", "36角"),
        ("5平方厘米", "5平方米"), ("增加了5", "5"), ("减少5", "5"), ("小于5", "5"), ("5的倍数", "5"), ("5的平方", "5"),
        ("第5", "5"), ("5折", "5"), ("multiple of 5", "5"), ("5th", "5"), ("fifth", "5"),
        ("5 wolf", "5"), ("5 up", "5"), ("5 is", "5"), ("5 or", "5"), ("5 abcd", "5"), ("x is 5", "5"),
        ("x+1 or", "x+1"),
        (r"\pi is", r"\pi"), (r"\sqrt{2} is wrong", r"\sqrt2"), (r"x\text{ wrong}", "x"), ("x^2 wrong", "x^2"),
        (r"\frac12 wrong", r"\frac12"), (r"\frac12 or so", r"\frac12"), ("x=5 wrong", "x=5"), ("(1,2) wrong", "(1,2)"),
        (r"\pi x", "3.14x"), (r"2\pi x", r"\pi x"), ("F(b)-F(a)", "F(b-a)"), ("f(0)", "0"),
        ("200 grams of protein", "2 kg"),
        (r"\frac{dy}{dx}", r"\frac{y}{x}"), (r"\sqrt{x}+1", r"\sqrt{x}+2"), ("x^n", "x^m"), ("7 choose 2", "7"),
    ],
    "from bug reports": [
        (r"\frac{1}{1800!}", r"\frac{1}{1802!}"), ("k=4,5,6", "k=3,4,5"), ("S=(0,2)", "S=(0,2.5)"),
        (r"\frac{3^{1001}+1}{2\cdot 3^{1002}}", r"\frac{1}{2 \cdot 3^{1002}}"), (r"\pm 144", "144"), ("11:00", "2:00"),
        (r"1:8:27:\ldots", r"1:2:3:\ldots"), (r"a_n=\sum_{k=1}^{n} k^2", r"a_n=\sum_{k=1}^{n} k^3"),
        ("5x-2y+11=0", "5x+3y+9=0"), (r"\frac{x^2}{9}+\frac{y^2}{5}=1", r"\frac{x^2}{25}+\frac{y^2}{9}=1"),
        ("[4,9)", "(4,9)"), ("m+n = 118+29 = 148", "147"), ("118+29 = 148", "118"), ("4136", "413_6"),
        (r"(-\infty,-2]\cup(5,\infty)", r"(-\infty,-2] \cup [5,\infty)"), ("$85.000", "85000"),
        (r"\text{Amelia}", r"\text{Emilia}"), ("2.46", "2.43"), ("78", "7, 8"),
        (r"\emptyset", r"(-\infty,-7)\cup(-7,\infty)"), (r"__import__('os').system('touch PWNED')*\pi", r"\pi"),
        (r"\begin{pmatrix}open('PWNED2','w')\end{pmatrix}", r"\begin{pmatrix}1\end{pmatrix}"), ("21", "1"),
        ("14", "4"), ("甲", "乙"), ("七千二百四十五亿三千一百万六千", "724530106000"), ("4.5e33", "4.5e32"),
        ("B", "E"), ("2.5 billion", "2.5"), ("7 tenths", "7"), ("30 thousand", "30"), (r"3 \text{ or fewer}", "3"),
        ("5 squared", "5"), (r"5 \text{ is wrong}", "5"), (r"\approx 5", "5"), ("3 halves", "3"),
        (r"\sqrt{2}^{-2001}", r"\sqrt{2}^{-2003}"), (r"1-\frac{1}{2024!}", r"1-\frac{1}{2025!}"),
        (r"\frac{\sqrt2}{10^{50}}", r"\frac{\sqrt3}{10^{50}}"), ("1 hour 30 minutes", "1 hour"), ("3.5万", "3.5"),
    ],
}
# fmt: on


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_answer_is_right_however_it_is_written(kind: str) -> None:
    assert [pair for pair in RIGHT[kind] if compare(*pair) is not True] == []


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_answer_is_wrong_however_near_it_looks(kind: str) -> None:
    assert [pair for pair in WRONG[kind] if compare(*pair) is not False] == []


# Grading mathematics: the table of hard pairs, and real answers.


def test_the_hard_pairs_are_graded_as_a_mathematician_would() -> None:
    wrong = {
        f"{case.kind}: {case.answer} for {case.gold}": case.why
        for case in cases()
        if named(compare, case.answer, case.gold) is not case.right
    }
    assert wrong == {}


def test_the_table_is_large_and_repeats_nothing() -> None:
    given = [frozenset((pair.answer, pair.gold)) for pair in pairs() if pair.expected in ("equal", "different")]
    assert len(given) == len(set(given))
    assert len(pairs()) > 231


@pytest.mark.slow
def test_the_page_explains_each_difference_from_the_library() -> None:
    assert on_page() == differences()


def test_whatever_is_identical_is_right() -> None:
    for text in (r"\dfrac{5^{5^{5^{5^5}}}}{16}", r"\frac{", "((((", r"\ud800", "x" * 10_000):
        assert compare(text, text) is True


@pytest.mark.slow
def test_an_answer_of_any_length_is_graded() -> None:
    assert normal_form("5," * LONGEST) == "5," * LONGEST
    assert compare("(" * 2000, "5") is False


HOSTILE = [
    "亿", "万", "1万", "一", "三元", "半", "一又", "一分之", "约", "答：", "1小时", "5‰", "5%", "²⁄", "1 hour ",
    "minus ", "one hundred and ", "half of a ", "5 million ", "5 squared ", "7 tenths of ", r"2\text{ million ",
    "all positive ", "for all ", ",k", r"k\in", "exp(", "sqrt(", r"\{x|", "|", r"[1,2]\cup", "(1,2)U",
    r"\mathbb{R}\setminus\{1\}", "A(1,2)", "[[1,2],", "[[", "m+n=1=", r"\approx 5", "answer: ", "5", "0.1", "1/",
    "1.5e3",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_repetition_in_an_answer_takes_long_to_read(piece: str) -> None:
    many = piece * (LONGEST // len(piece))
    for text in (many, f"{many[: LONGEST - 1]}5", f"5{many[: LONGEST - 1]}"):
        assert family(normal_form(text)) or shape(normal_form(text))


PIECES = [
    r"\frac", r"\sqrt", "{", "}", "(", ")", "[", "]", r"\{", r"\}", "1", "2", "x", ",", "=", "<", r"\le", r"\pm", "^",
    "_", r"\circ", "%", r"\$", " ", ".", r"\text{", "cm", "and", r"\cup", r"\infty", r"\begin{pmatrix}", "&", r"\\",
    r"\end{pmatrix}", "-", "/", ":", "三", "√", "½", r"\overline{", "e", "|",
]  # fmt: skip


def test_nothing_that_looks_like_an_answer_raises() -> None:
    draw = random.Random(0)  # noqa: S311 - the same texts every time
    for _ in range(700):
        one, other = ("".join(draw.choices(PIECES, k=draw.randint(1, 9))) for _ in range(2))
        normal_form(one)
        assert grade(one, one).math_verify is True
        compare(one, other)


def gold_answers() -> Iterator[tuple[str, str]]:
    fields = {"math": "answer", "gsm8k": "answer", "zh": "answer"}
    for name, field in fields.items():
        for file in sorted((DATA / name).glob("*.jsonl")):
            for line in file.read_text("utf-8").splitlines():
                row = json.loads(line)
                yield f"{name}/{file.name}", str(row.get(field, row.get("golden"))).rpartition("####")[2].strip()


@needs("math")
def test_every_gold_answer_equals_itself_in_another_spelling() -> None:
    respelled = (
        lambda text: f"${text}$.",
        lambda text: text.replace(r"\frac", r"\dfrac").replace(r"\left", "").replace(r"\right", ""),
        lambda text: text.replace("(", r"\left( ").replace(")", r" \right)") if r"\left" not in text else text,
        lambda text: text.replace(r"\!", "").replace(r"\text{", r"\mbox{"),
    )
    golds = {gold: name for name, gold in gold_answers()}
    spelled = {
        (golds[gold], gold, spell(gold)) for gold in golds for spell in (str, *respelled) if gold or spell is str
    }
    assert {each for each in spelled if compare(each[2], each[1]) is not True} == set()


PAPER = DATA / "paper-runs"


@needs("paper-runs")
def test_published_answers_are_graded_as_docs_grading_says() -> None:
    train = {row["unique_id"]: row["answer"] for row in _lines(DATA / "math" / "train.jsonl")}
    golds = {row["item"]: train[row["unique_id"]] for row in _lines(PAPER / "items.jsonl")}
    answers = {row["response"]: extract(row["text"])[0] for row in _lines(PAPER / "responses.jsonl")}
    with (PAPER / "runs.csv").open(encoding="utf-8", newline="") as file:
        counted = Counter(
            (run["published_correct"] == "1", answers[int(run["response"])], golds[int(run["item"])])
            for run in csv.DictReader(file)
        )
    assert {
        (published, answer, gold): count
        for (published, answer, gold), count in counted.items()
        if published is not (answer is not None and compare(answer, gold) is True)
    } == {
        (False, "22500", "22,500"): 200,
        (False, "-12x - 3", "-12x -3"): 200,
        (False, "5040", r"5,\!040"): 200,
        (False, "A,B,E", r"\text{A,B,E}"): 200,
        (True, r"\frac{7}{2}", r"\frac{7}{6}"): 43,
    }
    assert counted.total() == 20_000
    assert library_verdict("A,B,E", r"\text{A,B,E}") is False


def _lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


# Hendrycks' string rules.

STRICT_PIECES = st.sampled_from(
    [
        r"\frac",
        r"\sqrt",
        r"\dfrac",
        "1",
        "2",
        "x",
        "{",
        "}",
        "/",
        "=",
        " ",
        r"\text{ ",
        r"\left",
        ".",
        "0",
        "%",
        r"\%",
        r"\$",
    ]
)
LATEX = st.lists(STRICT_PIECES, max_size=8).map("".join)


def test_the_published_pairs_are_equal() -> None:
    pairs = [
        (r"\tfrac{1}{2} +\! \frac1{72}", r"\\dfrac{1}{2} +\frac{1}{72}"),
        (r"10\text{ units}", "10 "),
        ("10", r"\$10"),
        (r"\left(x-2\right)\left(x+2\right)", "(x-2)(x+2)"),
        ("0.1", ".1"),
        (r"10\%", "10"),
        (r"10\sqrt{3} + \sqrt4", r"10\sqrt3 + \sqrt{4}"),
        (r"\frac34i", r"\frac{3}{4}i"),
        (r"\tfrac83", r"\frac{8}{3}"),
        ("1/2", r"\frac{1}{2}"),
    ]
    assert [pair for pair in pairs if not named(equal_strict, *pair)] == []


def test_the_published_pairs_are_different() -> None:
    pairs = [
        (r"\tfrac{1}{2} + \frac1{72}", r"\\frac{1}{2} + 2/3"),
        ("10, 4, -2", "4, 10, -2"),
        ("10, 4, 2", "4, 12, 2"),
        (r"10\text{ units}", "100 "),
        ("0.1, 4, 2", "4, .1, 2"),
        ("5x - 7y + 11z + 4 = 0", "x + y - z + 2 = 0"),
    ]
    assert [pair for pair in pairs if named(equal_strict, *pair)] == []


def test_each_rule_by_itself() -> None:
    cases = [
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac1{72}", r"\frac{1}{72}"),
        (r"\frac{72}1", r"\frac{72}1"),
        (r"\frac12\frac34", r"\frac{1}{2}\frac{3}{4}"),
        ("0.5", r"\frac{1}{2}"),
        (".5", r"\frac{1}{2}"),
        ("-3/4", r"\frac{-3}{4}"),
        ("a/b", "a/b"),
        ("1/2/3", "1/2/3"),
        ("01/2", "01/2"),
        ("x=5", "5"),
        ("x = 5", "5"),
        ("xy=5", "5"),
        ("xyz=5", "xyz=5"),
        ("x=y=5", "x=y=5"),
        (r"\sqrt3", r"\sqrt{3}"),
        (r"90^\circ", "90"),
        (r"90^{\circ}", "90"),
        (r"\$1{,}000", "1{,}000"),
        ("50%", "50"),
        (r"\left[ 0, 1 \right)", "[0,1)"),
        (r"(.5, {.25})", "(.5,{0.25})"),
        ("a\nb", "ab"),
        (r"12\text{ cm}^2", "12"),
        ("", ""),
    ]
    wrong = {text: found for text, normal in cases if (found := named(normalise, text)) != normal}
    assert wrong == {}


def test_strict_means_no_algebra() -> None:
    pairs = [("2/4", "1/2"), ("5.0", "5"), ("1,000", "1000"), (r"\text{yes}", "yes"), ("(1,2)", "[1,2]"), ("", "0")]
    assert [pair for pair in pairs if named(equal_strict, *pair)] == []


@pytest.mark.parametrize("broken", [r"5\text{ cm}\text{ long}", r"3\sqrt", r"\frac", r"2\frac "])
def test_what_the_rules_cannot_read_only_equals_itself(broken: str) -> None:
    assert equal_strict(broken, broken)
    assert not equal_strict(broken, broken + " ")
    assert not equal_strict(broken.split("\\")[0], broken)


@given(LATEX, LATEX)
def test_equality_is_reflexive_and_symmetric(one: str, other: str) -> None:
    assert equal_strict(one, one)
    assert equal_strict(one, other) == equal_strict(other, one)


@given(st.text(), st.text())
def test_any_text_can_be_compared(one: str, other: str) -> None:
    assert equal_strict(one, other) == equal_strict(other, one)


@given(st.integers(-999, 999), st.integers(1, 999))
def test_a_fraction_reads_the_same_in_every_spelling(a: int, b: int) -> None:
    spellings = [
        f"{a}/{b}",
        rf"\frac{{{a}}}{{{b}}}",
        rf"\dfrac{{{a}}}{{{b}}}",
        rf"\tfrac {{{a}}} {{{b}}}",
        f"x={a}/{b}",
    ]
    assert all(equal_strict(one, other) for one in spellings for other in spellings)
    assert not equal_strict(f"{a}/{b}", f"{a}/{b + 1}")
