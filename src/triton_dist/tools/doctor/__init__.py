"""``triton-dist doctor``: one small function a question, each giving findings; asking and printing are apart."""
