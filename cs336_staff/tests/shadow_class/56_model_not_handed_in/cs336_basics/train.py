from model import MultiHeadSelfAttention

if __name__ == "__main__":
    print(MultiHeadSelfAttention(16, 4))
