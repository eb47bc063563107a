"""One evaluation by many processes over one store, which come and go as they like.

``cells`` draws the cells that no other process has, and ``agreement`` holds all of them to one
recipe. ``ray_cluster`` starts such processes on a Ray cluster.
"""
