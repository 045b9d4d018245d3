"""Syllables and words of made-up names and phrases."""

_LISTS = {
    "onsets": """
        b bl br d dr f fl g gl gr h j k kl kr l m n p pl pr r s sh sk st t th tr v vr w y z zh qu kh gh
    """,
    "verbs": """
        paint sell borrow teach repair carry follow water photograph bake knit polish measure weigh deliver lend
        dust mow whistle sketch juggle varnish wrap unpack sweep iron fold stir taste season plough harvest sow
        prune translate recite proofread bind catalogue tune conduct compose rehearse applaud glue carve weave dye
        embroider tickle greet wink nod salute escort fetch borrow outrun overtake imitate admire envy tutor babysit
    """,
    "nouns": """
        lamps ladders bread letters roofs bicycles kettles violins maps gardens orchards boats umbrellas clocks
        carpets spoons pumpkins stamps candles barrels mirrors puppets scarves saddles lanterns marbles kites
        hammocks teapots windmills pianos cushions pebbles feathers blankets buttons baskets curtains chimneys
        fences
    """,
    "adjectives": """
        old green heavy wooden quiet bright tiny round rusty golden striped folded borrowed winter summer
    """,
    "links": """
        to from with for about near behind beside without after before against over
    """,
    "adverbs": """
        slowly twice gladly again at dawn by hand in winter on foot together every spring at noon
    """,
    "titles": """
        Baker Gardener Carpenter Librarian Astronomer Sailor Weaver Beekeeper Cobbler Juggler Potter Miller Tailor
        Glassblower Lamplighter Shepherd Clockmaker Harpist Ferryman Cartographer Chandler Cooper Drummer Falconer
    """,
    "groups": """
        Guild Choir Orchard Workshop Bakery Orchestra Observatory Kennel Aviary Bookshop Regatta Nursery
    """,
    "bases": """
        unit node item box peg tile card bead link edge tie bond path rung knot cell gear leaf
    """,
}
ONSETS = tuple(_LISTS["onsets"].split())
VERBS = tuple(_LISTS["verbs"].split())
NOUNS = tuple(_LISTS["nouns"].split())
ADJECTIVES = tuple(_LISTS["adjectives"].split())
LINKS = tuple(_LISTS["links"].split())
ADVERBS = tuple(_LISTS["adverbs"].split())
TITLES = tuple(_LISTS["titles"].split())
GROUPS = tuple(_LISTS["groups"].split())
BASES = tuple(_LISTS["bases"].split())
_ENDINGS = tuple(vowel + coda for vowel in "aeiou" for coda in ("", *"nrlstkmd"))
_MORE = ("ai", "ei", "ou", "ia", "é", "ü", "ö", "ang", "ind", "org", "ash", "akh")
SYLLABLES = tuple(onset + ending for onset in ONSETS for ending in (*_ENDINGS, *_MORE))
PARTICLES = ("ob", "zu", "ver", "del", "ek")
