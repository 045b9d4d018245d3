"""The API for programs that speak the Model Context Protocol: tools that send the requests a person would."""
