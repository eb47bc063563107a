"""The gym: a miniature world in which orchestration must be learnt and can be proved.

It draws questions in small-vocabulary English by seed, simulates workers that read only the text
they are sent, and knows exact reference levels. Nothing here touches the network or the clock.
"""
