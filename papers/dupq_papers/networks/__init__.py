"""The networks that only the papers need; `encoder.kind` names them."""
