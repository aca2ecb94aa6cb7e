"""What goes over HTTP between the API and its clients: requests and responses as structs. No I/O.

The server and the client use the same structs. A struct has the name of its component in the OpenAPI document, and its
fields are in the order in which the server writes them.

The client must understand a server of another version: an unknown field of a response is ignored, a field that a server
may leave out has a default, and a word of a fixed set is text (`words`). Requests are strict: the server refuses a
field that it does not know.
"""
