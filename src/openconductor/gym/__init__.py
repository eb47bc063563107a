"""The gym: a miniature world in which orchestration must be learnt and can be proved.

In: seeds. Out: questions in small-vocabulary English, simulated workers that read only the text
they are sent, and exact reference levels. Nothing here touches the network or the clock.
"""
