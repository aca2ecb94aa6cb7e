"""The live view of `duetime top`: what it reads, what it shows, and what its keys do.

gather.py   one frame of facts, from the API
view.py     what is shown of a frame: the pane, the order, the filter; and what a key changes. Pure
panes.py    a frame as tables; details.py one job
terminal.py keys and sizes of a terminal
screen.py   the loop: a thread gathers, the main thread draws and takes keys
"""
