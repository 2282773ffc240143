"""What every Valet service needs and none should write twice."""
