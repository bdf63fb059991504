number = -1
