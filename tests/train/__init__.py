from guard.detect.weights import SHIPPED

#: Shipped weights whose base model every environment of the tests has.
SMALL = SHIPPED.with_name("encoder-small")
WEIGHTS = SMALL if SMALL.is_dir() else SHIPPED
