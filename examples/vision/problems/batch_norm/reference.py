"""Batch normalisation. What nothing uses is another right way to the same numbers."""


# 2 Batch normalisation
def run_batch_norm(x, weight, bias, running_mean, running_var, training, eps):
    if training:
        rows = x.transpose(0, 1).flatten(1)  #: x, one row for each channel
        total = rows.sum(1)  #: the batch's sum of each channel
        #: the batch's mean of each channel. Which axes do you average over, and in which mode?
        mean = x.mean((0, 2, 3), keepdim=True)[0]
        centred = x - mean  #: x − the batch's mean of its channel. Which mean does this mode take?
        squared = centred.square()  #: (x − the batch's mean of its channel)²
        centred_rows = centred.transpose(0, 1).flatten(1)  #: x − the batch's mean, one row for each channel
        #: the batch's variance of each channel. What do you divide Σ(x − mean)² by?
        variance = squared.mean((0, 2, 3), keepdim=True)[0]
        #: the batch's variance + eps. Which variance does this mode take, and where does eps stand?
        variance_and_eps = variance + eps
    else:
        #: the running mean of each channel. Which axes do you average over, and in which mode?
        mean = running_mean[:, None, None]
        centred = x - mean  #: x − the running mean of its channel. Which mean does this mode take?
        #: the running variance of each channel. What do you divide Σ(x − mean)² by?
        variance = running_var[:, None, None]
        #: the running variance + eps. Which variance does this mode take, and where does eps stand?
        variance_and_eps = variance + eps
    root = variance.sqrt()  #: the root of the variance
    deviation = variance_and_eps.sqrt()  #: the root of the variance + eps. Where does eps stand?
    inverse = 1 / deviation  #: 1 / the root of the variance + eps
    normalised = centred / deviation  #: x with mean 0 and variance 1
    weights = weight[:, None, None]  #: the weight of each channel. Along which axis does the weight lie?
    scale = weights / deviation  #: weight / root
    scaled_mean = mean * scale  #: mean × weight / root
    biases = bias[:, None, None]  #: the bias of each channel. Along which axis does the bias lie?
    shift = biases - scaled_mean  #: bias − mean × weight / root
    scaled = normalised * weights  #: x with mean 0 and variance 1, times the weight
    return scaled + biases
