"""Stand-ins for what is on the other side of a protocol; what is under test is never doubled.

A double of a model server misbehaves on demand, while it serves, over an endpoint of its own:

    POST /double/misbehave {"how": "500"}                the next prompts are answered so, until told otherwise
    POST /double/misbehave {"how": "500", "times": 3}    the next three
    POST /double/misbehave {"how": "well"}               from now on it behaves, and gives back what it kept
    GET  /double                                         {"misbehaves": {"500": 3}, "loads": [...], "prompts": 17}

An answer of the endpoint is that same document; 400 names the words that this double knows. Words are the same for all
doubles, and the `how` of `tests.faults.vocabulary.misbehave`:

    prompts: 500, 503, 429, 424                            B1   an error with that status
             hang, hang_after_headers                      B2   nothing, or nothing more, comes until the client leaves
             reset                                         B3   RST in the middle of the reply
             half                                          B4   200 and a whole reply that holds half a document
             length, empty                                 B5,6 ended by length; without a text
             cut                                           B7   the prompt loses all but its first half, in silence
             out_of_memory                                 B14  an error that says so, and the model is gone
             unreadable, out_of_range                      B19  a judge's answer without a rating, or with [[9]]
    models:  digest                                        B8   the tag names another model from now on
             spill, shrink                                 B9, 13  loads are partly off the GPU; have half the context
             keep, keep_unlisted                           B10, 11 an unload is answered, and the memory stays taken
             stranger                                      B12  somebody else's model is loaded
             hang_on_load                                  P10  a load does not end
    TGI, vLLM: crash_on_load, illegal_instruction (with `--double`: from its start); vLLM: sleepless, wakeless
             (refused), sleeps_awake, wakes_asleep (said and not done), busy (has something to do)

`tests.doubles.misbehaviour` holds the words, the count, and everything that is the same for all protocols.
"""
