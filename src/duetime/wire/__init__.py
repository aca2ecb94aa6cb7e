"""Requests and responses of the API as structs. No I/O.

The server and the client use the same structs. A struct has the name of its component in the OpenAPI document, and its
fields are in the order in which the server writes them.

The client must understand a server of another version. It ignores unknown fields of a response, fields that a server
may leave out have defaults, and values of fixed sets are text (`words`). Requests are strict: the server refuses
unknown fields.
"""
