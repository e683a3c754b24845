"""What the examination says of blockwise attention."""

from cs336_kit.problems.blockwise_attention.examination import examine_blockwise
from cs336_staff.authoring.programs import wrong_submission
from cs336_staff.problems.blockwise_attention import programs
from cs336_staff.problems.scaled_dot_product_attention.programs import attention

ADAPTER = "run_blockwise_attention"


def test_the_numbers_are_those_of_this_function():
    (found,) = examine_blockwise(wrong_submission("blockwise-nothing-rescaled")[ADAPTER])
    assert found.measured == (
        "With 4 queries and 5 keys in blocks of 2, your answer at [0, 1, 0, 6] is -0.7261; it should be -1.536."
    )


def test_a_mistake_of_attention_is_told_as_that():
    (found,) = examine_blockwise(wrong_submission("blockwise-no-scale")[ADAPTER])
    assert (found.id, found.section) == ("attention-scale-missing", "3 Attention")


def whole_matrix(Q, K, V, mask=None, block_size=None):
    return attention(Q, K, V, mask)


def test_a_matrix_that_is_held_is_found():
    (found,) = (f for f in examine_blockwise(whole_matrix) if f.id == "blockwise-holds-matrix")
    assert "makes a tensor of 4,200 numbers; one block has 64 scores," in found.measured


def test_blocks_that_change_something_else_are_found():
    def run(Q, K, V, mask=None, block_size=None):
        answer = programs.blockwise(Q, K, V, mask, block_size)
        return answer * 0.9 if block_size == 3 else answer

    (found,) = (f for f in examine_blockwise(run) if f.id == "blockwise-blocks-differ")
    assert found.measured.startswith("With block_size=3 your answer differs by up to 0.0723 from that in one block")
